"""What the library of `busfare try` changes, with a stand-in driver. It ends the program if registered memory is unmapped,
a copy uses memory that was unpinned too early, or the program waits for a captured stream.
"""

import signal

import pytest

from tests.trial.conftest import Run

SCENARIOS = (
    "repeat", "back", "large", "small", "stack", "stack-of-thread", "async", "any", "captured", "rows", "growing", "slices",
    "neighbours", "shared-page", "brief", "given-back", "own-pins", "destroyed", "non-blocking", "late-stream",
    "unknown-side", "locked", "fork", "threads", "next", "managed", "placed", "crowded", "churn", "tiles", "shared-memory",
    "driver-closes-library", "stacks", "flag", "host-function", "purge",
)  # fmt: skip


@pytest.mark.parametrize("how", [(), ("dlsym",)], ids=["cuGetProcAddress", "dlsym"])
@pytest.mark.parametrize("changes", ["", "pin", "async", "pin,async", "dry,pin", "spin", "prefetch"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_changed_program_copies_the_same_data(
    run: Run, scenario: str, changes: str, how: tuple[str, ...]
) -> None:
    changed = run(changes, scenario, *how)
    assert (changed.status, changed.error) == (0, "")
    assert changed.output.endswith("right\n")
    assert changed.counts["first_call_ns"] <= changed.counts["last_call_ns"]


@pytest.mark.parametrize("changes", ["", "spin", "dry,pin"])
def test_nothing_is_pinned_or_staged_unless_requested(run: Run, changes: str) -> None:
    changed = run(changes, "large")
    assert {call.split()[0] for call in changed.calls} == {"h2d"}
    assert all("pageable" in call for call in changed.calls)
    assert changed.counts["pageable_copies"] == len(changed.calls)
    assert bool(changed.counts["changed_copies"]) == changes.startswith("dry")


def test_a_buffer_is_pinned_at_its_second_copy_and_unpinned_before_it_is_freed(run: Run) -> None:
    changed = run("pin", "repeat")
    copies = [call for call in changed.calls if call.startswith(("h2d", "register", "unregister"))]
    assert copies == [
        "h2d pageable 1048576",
        "register 1052672",
        "h2d pinned 1048576",
        "h2d pinned 1048576",
        "unregister",
    ]
    assert changed.output == "registered 1\nregistered 0\nright\n"
    assert changed.counts["pinned_ranges"] == 1
    assert changed.counts["kept first-use"] == 1


def test_a_large_buffer_is_pinned_at_its_first_copy(run: Run) -> None:
    calls = run("pin", "large").calls
    assert calls[:2] == ["register 20975616", "h2d pinned 20971520"]


def test_results_are_copied_to_pinned_memory(run: Run) -> None:
    for changes in ("pin", "pin,async"):
        assert [call for call in run(changes, "back").calls if call.startswith("d2h")][
            -1
        ] == "d2h pinned 1048576"


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [("small", "small"), ("stack", "stack"), ("stack-of-thread", "stack"), ("brief", "brief")],
)
def test_copies_not_worth_pinning_are_unchanged_and_counted(run: Run, scenario: str, reason: str) -> None:
    changed = run("pin", scenario)
    assert changed.counts[f"kept {reason}"] > 0
    assert (
        changed.counts["changed_copies"]
        + sum(count for name, count in changed.counts.items() if name.startswith("kept "))
        == changed.counts["pageable_copies"]
    )


def test_memory_around_a_stack_is_pinned_but_no_stack(run: Run) -> None:
    assert run("pin", "stacks").counts["pinned_ranges"] == 2


def test_pages_of_adjacent_slices_are_pinned_once(run: Run) -> None:
    changed = run("pin", "slices")
    assert changed.counts["pinned_ranges"] == 20
    assert 20 * 17 << 20 <= changed.counts["pinned_bytes"] <= (20 * 17 << 20) + 4096
    assert changed.calls[:5] == [
        "register 17829888",
        "h2d pinned 17825792",
        "register 17825792",
        "h2d-async pinned 4080",
        "h2d-async pinned 17821712",
    ]


def test_memory_stays_pinned_when_a_block_on_the_same_page_is_freed(run: Run) -> None:
    calls = run("pin", "shared-page").calls
    assert calls.count("unregister") == 2
    assert calls.index("unregister") == len(calls) - 3
    assert calls[-2:] == ["h2d pinned 1048576", "unregister"]


def test_asynchronous_copies_of_pinned_memory_complete_before_they_return(run: Run) -> None:
    calls = run("pin", "async").calls
    pinned = [n for n, call in enumerate(calls) if call.startswith(("h2d-async pinned", "d2h-async pinned"))]
    assert pinned
    assert all(calls[n + 1] == "synchronize" for n in pinned)


def test_managed_memory_that_the_cpu_may_have_touched_is_prefetched_before_kernels(run: Run) -> None:
    changed = run("prefetch", "managed")
    prefetch = "prefetch 1048576"
    assert changed.calls == [prefetch, "kernel", "kernel", prefetch, "kernel", "kernel", "kernel"]
    assert (changed.counts["changed_copies"], changed.counts["changed_bytes"]) == (2, 2 << 20)


@pytest.mark.parametrize(
    ("changes", "scenario"), [("prefetch", "placed"), ("prefetch", "crowded"), ("pin", "managed")]
)
def test_prefetching_needs_a_request_free_memory_and_no_placement_by_the_program(
    run: Run, changes: str, scenario: str
) -> None:
    assert set(run(changes, scenario).calls) == {"kernel"}


def test_a_copy_to_managed_memory_unpins_its_source(run: Run) -> None:
    changed = run("pin", "unknown-side", FAKE_MANAGED="1")
    assert (changed.status, changed.output) == (0, "right\n")
    assert "any-async pageable 1048576" in changed.calls


def test_a_blocking_copy_to_another_gpu_completes_before_it_returns(run: Run) -> None:
    assert "synchronize" not in run("async", "repeat").calls
    assert run("async", "repeat", FAKE_OTHER_GPU="1").calls.count("synchronize") == 3


def test_repeatedly_unpinned_memory_is_no_longer_pinned(run: Run) -> None:
    calls = run("pin", "churn").calls
    assert (calls.count("register 20975616"), calls.count("unregister")) == (2, 2)


def test_a_buffer_with_many_pinned_parts_is_pinned_as_a_whole(run: Run) -> None:
    calls = run("pin", "tiles").calls
    assert calls[-2:] == ["h2d pinned 1048576", "unregister"]


def test_memory_of_a_captured_copy_is_never_pinned_again(run: Run) -> None:
    calls = run("pin", "captured").calls
    assert calls.count("unregister") == 1
    assert "pinned" not in " ".join(calls[calls.index("unregister") :])


def test_copies_in_a_graph_are_left_unchanged(run: Run) -> None:
    for changes in ("pin", "pin,async"):
        assert run(changes, "captured").counts["kept capture"] > 0


@pytest.mark.parametrize("scenario", ["repeat", "async", "large"])
def test_copies_to_the_gpu_go_through_the_ring(run: Run, scenario: str) -> None:
    changed = run("async", scenario)
    to_gpu = [call for call in changed.calls if call.startswith("h2d")]
    assert to_gpu
    assert all(call.startswith("h2d-async staged") for call in to_gpu)
    assert changed.counts["staged_copies"] == changed.counts["changed_copies"] > 0
    assert not any(call.startswith("register") for call in changed.calls)


def test_a_blocking_copy_completes_before_it_returns_if_streams_are_non_blocking(run: Run) -> None:
    assert run("async", "non-blocking").calls[-1] == "synchronize"


def test_copies_to_memory_that_the_cpu_can_read_are_left_unchanged(run: Run) -> None:
    changed = run("async", "large", FAKE_MANAGED="1")
    assert changed.status == 0
    assert changed.counts["kept host-visible"] == 3


def test_copies_of_memory_that_cannot_be_pinned_are_left_unchanged(run: Run) -> None:
    changed = run("pin", "large", FAKE_REFUSE="1")
    assert changed.status == 0
    assert changed.counts["kept refused"] == 3
    assert changed.counts["changed_copies"] == 0


def test_the_counters_of_a_killed_program_are_kept(run: Run) -> None:
    changed = run("pin", "killed")
    assert changed.status == -signal.SIGKILL
    assert changed.counts["pinned_ranges"] == 1


@pytest.mark.parametrize(("changes", "flags"), [("", 10), ("spin", 9), ("block", 12)])
def test_spin_and_block_set_how_the_cpu_waits(run: Run, changes: str, flags: int) -> None:
    assert f"flags {flags}\n" in run(changes, "scheduling").output
