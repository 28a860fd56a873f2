"""Compiles the C++ programs of this folder: `python validation/pairs/build.py --out build/pairs`.

Uses the nvcc on the path, else the one of NVIDIA's Python wheels (nvidia-cuda-nvcc, -crt, -cccl, -nvvm,
nvidia-cuda-runtime, nvidia-nvtx). Builds for the GPU that is here, or for sm_90 where there is none.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent


def sources() -> list[Path]:
    return sorted(HERE.glob("*.cu"))


def wheels() -> Path | None:
    """The folder that NVIDIA's wheels share; None where they are not installed."""
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        if toolkits := sorted(Path(folder).glob("cu1[3-9]")):
            return toolkits[-1]
    return None


def compiler() -> list[str]:
    """nvcc and the options that depend on where it comes from. Raises SystemExit where there is none."""
    inside = wheels()
    toolkit = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if toolkit and inside and Path(toolkit).resolve().is_relative_to(inside.resolve()):
        toolkit = None  # the wheels' own, which needs to be told where its headers are
    if toolkit:
        # A toolkit may come without NVTX, which its wheel has.
        extra = ["-I", str(inside / "include")] if inside and not _has_nvtx(Path(toolkit)) else []
        return [toolkit, *extra]
    if inside and (inside / "bin" / "nvcc").is_file():
        return [
            str(inside / "bin" / "nvcc"), "-I", str(inside / "include"), "-I", str(inside / "include" / "cccl"),
            "-L", str(inside / "lib"),
        ]  # fmt: skip
    raise SystemExit("no nvcc: install a CUDA toolkit, or `pip install --group cuda`")


def _has_nvtx(nvcc: Path) -> bool:
    root = nvcc.resolve().parents[1]
    return any((root / folder / "nvtx3").is_dir() for folder in ("include", "targets/x86_64-linux/include"))


def build(out: Path, architecture: str, jobs: int) -> list[str]:
    """Compiles every program into `out`; returns what failed, with the compiler's words."""
    out.mkdir(parents=True, exist_ok=True)
    start, *rest = compiler()

    def compile_source(source: Path) -> str:
        target = out / source.stem
        newest = max(file.stat().st_mtime for file in (source, HERE / "measured.h"))
        if target.exists() and target.stat().st_mtime >= newest:
            return ""
        command = [
            start, "-O3", "-std=c++20", "-Xcompiler=-Wall,-Wextra", f"-arch={architecture}", "-o",
            str(target), str(source), *rest,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"{source.name}:\n{done.stdout}{done.stderr}"

    with ThreadPoolExecutor(jobs) as pool:
        return [failure for failure in pool.map(compile_source, sources()) if failure]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile the C++ programs of this folder.")
    parser.add_argument("--out", type=Path, default=Path("build/pairs"))
    parser.add_argument("--arch", default="", help="sm_90 and the like; the GPU's own otherwise")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    architecture = options.arch or ("native" if Path("/dev/nvidia0").exists() else "sm_90")
    failures = build(options.out, architecture, options.jobs)
    print("\n".join(failures) or f"{len(sources())} programs in {options.out}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
