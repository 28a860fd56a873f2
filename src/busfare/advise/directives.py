"""Programs of directives (OpenMP, OpenACC): told by the names of their kernels, and advised in their words."""

from __future__ import annotations

from busfare.trace import Trace
from busfare.trace.totals import top_kernels

__all__ = ["WORDS", "language_of"]

#: What compilers call the kernels of a region: nvc and nvfortran, Clang and what is made from it, GCC, Cray.
NAMES = {
    "OpenMP": r"^nvkernel_\w+_F\d+L\d+|^__omp_offloading_|\$_omp_fn\$",
    "OpenACC": r"_\d+_gpu(__red)?$|^__pgi_uacc_|\$_oacc_fn\$|\$ck_L\d+",
}
#: The change to make, by language and finding.
WORDS: dict[str, dict[str, str]] = {
    "OpenMP": {
        "ping-pong": "Put one data region around the loop, `#pragma omp target data map(tofrom: …)` (`!$omp target data "
        "map(tofrom: …)`): the target regions in it find the arrays on the GPU. Where the host needs one of them meanwhile, "
        "`target update from(…)` brings that one.",
        "pageable-copies": "Allocate those arrays pinned: with nvc, nvc++ and nvfortran by -gpu=pinned, elsewhere by "
        "omp_alloc with an allocator of the trait omp_atk_pinned.",
        "small-copies": "Map what travels together as one array or structure, in one `target data` region; scalars that are "
        "firstprivate travel with the launch.",
        "synchronous-copies": "Use `target enter data map(to: …) nowait` and `target … nowait` with `depend`, and "
        "`taskwait` only where the host needs the result.",
        "exposed-copies": "Split the loop into chunks, each with `target enter data map(to: …)`, its target region and "
        "`target exit data map(from: …)`, all `nowait` with `depend`, so that one chunk's copies run beside another's "
        "kernels. Where every region needs all of the data first, this cannot be done.",
        "repeated-copies": "Map it once, by `target data map(to: …)` around all regions that read it; where the host has "
        "changed it, `target update to(…)`.",
        "synchronisations": "Use `target … nowait` with `depend`, and `taskwait` only where the host reads a result.",
    },
    "OpenACC": {
        "ping-pong": "Put one data region around the loop, `#pragma acc data copy(…)` (`!$acc data copy(…)`), with "
        "`present(…)` on the compute regions in it. Where the host needs one of the arrays meanwhile, `acc update self(…)` "
        "brings that one.",
        "pageable-copies": "Allocate those arrays pinned: with nvc, nvc++ and nvfortran by -gpu=pinned.",
        "small-copies": "Put what travels together into one array, in one `acc data` region; scalars that are firstprivate "
        "travel with the launch.",
        "synchronous-copies": "Use `async(queue)` on data and compute regions, and `acc wait` only where the host needs the "
        "result.",
        "exposed-copies": "Split the loop into chunks, each with its `acc enter data copyin(…) async(queue)`, compute "
        "region and `acc exit data copyout(…)` on a queue of its own, so that one chunk's copies run beside another's "
        "kernels. Where every region needs all of the data first, this cannot be done.",
        "repeated-copies": "Copy it in once, by `acc data copyin(…)` around all regions that read it; where the host has "
        "changed it, `acc update device(…)`.",
        "synchronisations": "Use `async(queue)` on the compute regions, and `acc wait` only where the host reads a result.",
    },
}


def language_of(trace: Trace) -> str | None:
    """The language of directives that one of the ten longest kernels is from; None for other programs."""
    names = top_kernels(trace, 10)["name"]
    for language, pattern in NAMES.items():
        if names.str.contains(pattern).fill_null(False).any():
            return language
    return None
