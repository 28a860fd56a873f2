"""The packages as users get them: built once, installed outside the tree, and every first command run there."""

import email
import email.policy
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.processes import finished

ROOT = Path(__file__).parents[1]
#: Not optimised: what the compiled modules compute is other tests' affair.
SETTINGS = {"cmake.build-type": "Plain"}


def build(kind: str, source: Path, folder: Path, settings: dict[str, str]) -> Path:
    """The package that the project's build makes of `source`, by the tools already installed."""
    code = (
        "import sys, scikit_build_core.build as b\n"
        f"print(b.build_{kind}({str(folder)!r}, {settings | {'build-dir': str(folder / 'build')}!r}))"
    )
    environment = os.environ | {"CXXFLAGS": "-O0"}
    done = finished([sys.executable, "-c", code], cwd=source, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    # Python's own `extractall` takes a filter since 3.11.4 alone, and Debian 12 has 3.11.2.
    shutil.unpack_archive(build("sdist", ROOT, folder, {}), folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the source distribution."""
    return build("wheel", source, tmp_path_factory.mktemp("wheel"), SETTINGS)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment that has the wheel, and of this one only what it depends on."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    # Paths in a .pth come behind the environment's own packages, and no .pth of theirs is read: no editable install is.
    depends_on = [p for p in sys.path if p.endswith("site-packages")]
    Path(packages, "dependencies.pth").write_text("\n".join(depends_on) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    command += ["--no-index", "--disable-pip-version-check", "--ignore-installed", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "bin"


def test_the_wheels_of_tree_and_source_distribution_hold_the_same(wheel: Path, tmp_path: Path) -> None:
    from_tree = build("wheel", ROOT, tmp_path, {"wheel.cmake": "false", "wheel.py-api": ""})
    python, whole = (set(zipfile.ZipFile(made).namelist()) for made in (from_tree, wheel))
    compiled = {name for name in whole if name.endswith(".so")}
    assert {name.split("/")[-1].split(".")[0] for name in compiled} == {
        "_columns", "_core", "_kineto_events", "_sqlite_columns", "libbusfare_messages", "libbusfare_recorder",
            "libbusfare_try",
    }  # fmt: skip
    assert whole - compiled == python
    tracked = finished(["git", "ls-files", "src"], cwd=ROOT).stdout.split()
    assert {name.removeprefix("src/") for name in tracked} <= python


def test_the_metadata_is_what_an_index_takes(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name), policy=email.policy.default)
    assert tuple(map(int, metadata["Metadata-Version"].split("."))) >= (2, 4)
    # A licence by its expression, and none among the classifiers.
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    assert {f"{Path(name).parent}/licenses/LICENSE", "busfare/py.typed"} <= {*archive.namelist()}
    classifiers = metadata.get_all("Classifier")
    assert not any(classifier.startswith("License ::") for classifier in classifiers)
    pythons = {c.rpartition(" ")[2] for c in classifiers if "Python :: 3." in c}
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["cibuildwheel"]["build"]
    assert {f"cp{python.replace('.', '')}-manylinux_*" for python in pythons} == {*built}
    assert metadata["Requires-Python"] == f">={min(pythons, key=lambda python: int(python[2:]))}"
    assert metadata["Description-Content-Type"] == "text/markdown" and len(metadata["Summary"]) < 512
    assert metadata.get_content().lstrip().startswith("# busfare")


COMMANDS = {
    "demo": ("demo",),
    "report": ("report", "{trace}"),
    "what-if": ("what-if", "{trace}", "--pin", "--async"),
    "project": ("project", "{trace}", "--to", "gh200"),
    "plan": ("plan", "--h2d", "336MB", "--d2h", "504MB", "--kernel", "12ms", "--node", "h100-sxm"),
    "record": ("record", "--help"),
    "nodes": ("nodes",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_installed_command_runs_outside_the_tree(installed: Path, tmp_path: Path, command: str) -> None:
    where = "import busfare; print(busfare.__path__[0])"
    package = finished([installed / "python", "-c", where], cwd=tmp_path).stdout.strip()
    assert Path(package).is_relative_to(installed.parent)
    trace = Path(package) / "examples" / "smooth-out-of-core-h100.json.gz"
    arguments = [part.format(trace=trace) for part in COMMANDS[command]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = finished([installed / "busfare", *arguments], cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 3
    if command == "demo":
        page = (tmp_path / "busfare-demo" / "report.html").read_text("utf-8")
        assert page.count("<svg") > 1 and "The advised changes" in page


#: What users meet; none of it looks into the source tree.
FACED = ("test_api.py", "test_installation.py")


def test_the_installed_package_passes_tests_outside_the_tree(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [installed / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"tests/{name}" for name in FACED]
    done = finished(command, cwd=tmp_path, env=environment | {"PYTHONSAFEPATH": "1"})
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    where = "import busfare.cli; print(busfare.cli.__file__)"
    ran = finished([installed / "python", "-c", where], cwd=tmp_path)
    assert Path(ran.stdout.strip()).is_relative_to(installed.parent)
