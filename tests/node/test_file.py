"""Node files: what is read, and the one line that each mistake gets."""

import time
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.measure.node_file import encode
from busfare.nodes import catalogue_names, load_node
from busfare.nodes.component import Pass
from busfare.nodes.file import ALIASES, MOST_BYTES, decode

GOOD = """name = "mine"

[sources.sheet]
kind = "data-sheet"
cite = "a data sheet"

[[component]]
kind = "memory"
name = "memory0"
bandwidth_bytes_per_s = 51.2e9
source = "sheet"

[[component]]
kind = "cpu"
name = "cpu0"

[[component]]
kind = "gpu"
name = "gpu[0-1]"
memory_bandwidth_bytes_per_s = 900e9

[[link]]
kind = "memory"
between = ["memory0", "cpu0"]

[[link]]
kind = "pcie"
between = ["cpu0", "gpu[0-1]"]
generation = 3
lanes = 16

[[curve]]
direction = "h2d"
memory = "pinned"
up_to_bytes = [65536]
latency_overhead_s = [8e-6, 9e-6]
gap_per_byte_s = [1e-10, 8e-11]
issue_interval_s = { 1 = 2e-6, 2 = 9e-6, 10 = 4e-6 }
detail = [{ streams = 8, latency_overhead_s = [4e-5], gap_per_byte_s = [8e-10] }]

[[contention]]
both = { h2d = 0.9, d2h = 0.8 }

[[cost]]
call = "launch"
call_s = 4e-6

[[kernels]]
launch_s = 1.2e-6
memory_bytes_per_s = { read = 3e12, copy = 2.9e12 }
flops_per_s = { fp32 = 6e13, fp16_tensor = 8e14 }
gemm = [{ type = "fp16", m = 16, n = 4096, k = 8192, seconds = 3.1e-5, batch = 3 }]
passes = [{ kind = "norm", bytes = 524288, seconds = 2.5e-6 }]
"""


def line(text: str) -> int:
    return GOOD[: GOOD.index(text)].count("\n") + 1


def message(text: str) -> str:
    with pytest.raises(InputError) as caught:
        decode(text, "mine.toml")
    text = str(caught.value)
    assert "\n" not in text
    assert "Traceback" not in text
    return text


def test_a_good_file_reads_and_ranges_expand() -> None:
    node = decode(GOOD, "mine.toml")
    assert [gpu.name for gpu in node.gpus()] == ["gpu0", "gpu1"]
    assert len(node.links) == 3
    memory = node.component("memory0")
    source = node.provenance(memory, "bandwidth_bytes_per_s")
    assert source.kind == "data-sheet"


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ("lanes = 16", "lanes = 15", "lanes"),
        ("lanes = 16", "lanse = 16", "did you mean 'lanes'"),
        ("lanes = 16", 'lanes = "16"', "expected `int`"),
        ("generation = 3", "generation = 9", "generation"),
        ("bandwidth_bytes_per_s = 51.2e9", "bandwidth_bytes_per_s = -1.0", "bandwidth_bytes_per_s"),
        ("bandwidth_bytes_per_s = 51.2e9", "bandwidth_bytes_per_s = nan", "finite"),
        ("bandwidth_bytes_per_s = 51.2e9", "bandwidth_bytes_per_s = inf", "finite"),
        ("bandwidth_bytes_per_s = 51.2e9", "bandwidth_bytes_per_s = 1e300", "<= 1"),
        ("bandwidth_bytes_per_s = 51.2e9", "bandwidth_bytes_per_s = 1e-300", ">= 1"),
        ("gap_per_byte_s = [1e-10, 8e-11]", "gap_per_byte_s = [1e-300, 8e-11]", ">= 1e-18"),
        ('kind = "cpu"', 'kind = "cpuu"', "did you mean 'cpu'"),
        ('kind = "cpu"', 'kind = "fpga"', "known: cpu, memory, switch, gpu, nic"),
        ('kind = "pcie"', 'kind = "pci"', "did you mean 'pcie'"),
        ('source = "sheet"', 'source = "shet"', "no [sources.shet]"),
        ('between = ["cpu0", "gpu[0-1]"]', 'between = ["cpu0", "gpu[0-2]"]', "no component 'gpu2'"),
        ('between = ["memory0", "cpu0"]', 'between = ["cpu0", "cpu0"]', "linked to itself"),
        ('name = "gpu[0-1]"', 'name = "gpu[1-0]"', "runs backwards"),
        ('name = "gpu[0-1]"', 'name = "gpu[0-9999]"', "limit"),
        ('name = "gpu[0-1]"', 'name = "gpu[0"', "not a range"),
        ('name = "gpu[0-1]"', 'name = "cpu0"', "names must be unique"),
        ("up_to_bytes = [65536]", "up_to_byte = [65536]", "did you mean 'up_to_bytes'"),
        ("up_to_bytes = [65536]", "up_to_bytes = [65536, 131072]", "2 ends for 2 pieces"),
        ("gap_per_byte_s = [1e-10, 8e-11]", "gap_per_byte_s = [1e-10]", "1 figures for 2"),
        ("gap_per_byte_s = [1e-10, 8e-11]", "gap_per_byte_s = [1e-10, 0.0]", ">= 1e-18"),
        ("issue_interval_s = { 1", "issue_interval_s = { 0", "issue_interval_s: expected `int` >= 1"),
        ("issue_interval_s = { 1", "issue_interval_s = { one", "issue_interval_s"),
        ("detail = [{ streams = 8", "detail = [{ streams = 1", "'streams' must increase from 2"),
        ("both = { h2d = 0.9", "both = { h2d = 1.9", "both.h2d"),
        ("both = { h2d = 0.9", "both = { h2 = 0.9", "did you mean 'h2d'"),
        ('call = "launch"', 'call = "lunch"', "did you mean 'launch'"),
        ("call_s = 4e-6", "call_s = 4e-6\ngpu = 9", "no GPU 9"),
        ('direction = "h2d"', 'direction = "up"', "direction"),
        ("fp32 = 6e13", "fp23 = 6e13", "did you mean 'fp32'"),
        ("fp32 = 6e13", "fp32 = 0", ">= 1"),
        ("launch_s = 1.2e-6", "lunch_s = 1.2e-6", "did you mean 'launch_s'"),
        ("{ read = 3e12", "{ reads = 3e12", "did you mean 'read'"),
        ("n = 4096", "p = 4096", "unknown key"),
        ("n = 4096", "n = 0", ">= 1"),
        ("batch = 3", "batch = 0", "gemm[0].batch: expected `int` >= 1"),
        ("batch = 3", "batches = 3", "did you mean 'batch'"),
        ('kind = "norm"', 'kind = "nrom"', "did you mean 'norm'"),
        ('kind = "norm"', 'kind = "gemm"', "passes[0].kind"),
        ("bytes = 524288", "bytes = 0", "passes[0].bytes: expected `int` >= 1"),
        ("seconds = 2.5e-6", "seconds = -2.5e-6", "passes[0].seconds: expected `float` > 0"),
        ("bytes = 524288, ", "", "passes[0]"),
        ("[sources.sheet]", "[sources.sheet", "not TOML"),
        ("lanes = 16", "lanes = 16\nlanes = 16", "not TOML"),
        ("up_to_bytes = [65536]\nlatency_overhead_s = [8e-6, 9e-6]", "latency_overhead_s = []", "no pieces"),
        (
            "up_to_bytes = [65536]\nlatency_overhead_s = [8e-6, 9e-6]\ngap_per_byte_s = [1e-10, 8e-11]",
            "up_to_bytes = [65536, 4096]\nlatency_overhead_s = [8e-6, 9e-6, 9e-6]\ngap_per_byte_s = [1e-10, 8e-11, 7e-11]",
            "must increase",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(good: str, bad: str, says: str) -> None:
    text = message(GOOD.replace(good, bad, 1))
    assert says in text
    number = int(text.split(":")[1])
    assert abs(number - line(good)) <= 1, text


def test_what_kernels_reach_reads_and_is_written_again() -> None:
    node = decode(GOOD, "mine.toml")
    kernels = node.probed_kernels(1)
    assert kernels.flops_per_s == {"fp32": 6e13, "fp16_tensor": 8e14}
    assert kernels.gemm[0].flops == 2 * 3 * 16 * 4096 * 8192
    assert kernels.passes == (Pass("norm", 524288, 2.5e-6),)
    assert decode(encode(node), "again.toml").kernels == node.kernels
    alone = decode(GOOD.replace(", batch = 3", ""), "mine.toml").kernels[0].gemm[0]
    assert (alone.batch, alone.flops) == (1, 2 * 16 * 4096 * 8192)
    assert decode(GOOD[: GOOD.index("[[kernels]]")], "none.toml").probed_kernels() is None


def test_a_missing_key_is_named_with_its_table() -> None:
    text = message(GOOD.replace("lanes = 16\n", ""))
    assert "'lanes' is missing" in text
    assert int(text.split(":")[1]) == GOOD[: GOOD.index('kind = "pcie"')].count("\n")


def test_a_tag_on_top_is_the_source_of_every_table_that_names_none() -> None:
    top = GOOD.replace('name = "mine"', 'name = "mine"\nsource = "sheet"', 1)
    node = decode(top, "mine.toml")
    assert {table.source for table in (*node.components, *node.links, *node.curves)} == {"sheet"}
    assert "no [sources.shet]" in message(top.replace('source = "sheet"', 'source = "shet"', 1))


def test_a_gpu_that_nothing_reaches_is_an_error() -> None:
    text = message(GOOD.replace('between = ["cpu0", "gpu[0-1]"]', 'between = ["cpu0", "gpu0"]'))
    assert "no host memory reaches gpu1" in text


def test_a_node_needs_a_gpu() -> None:
    bare = GOOD[: GOOD.index("[[curve]]")]
    cut = bare.replace('kind = "gpu"', 'kind = "nic"').replace("memory_bandwidth_bytes_per_s = 900e9\n", "")
    assert "no component of kind 'gpu'" in message(cut)


def test_a_cycle_of_links_is_no_trouble() -> None:
    ring = GOOD.replace(
        "[[curve]]",
        '[[link]]\nkind = "nvlink"\nbetween = ["gpu[0-1]", "gpu[0-1]"]\ngeneration = 2\nlinks = 1\n\n'
        '[[link]]\nkind = "pcie"\nbetween = ["gpu1", "cpu0"]\ngeneration = 4\nlanes = 16\n\n[[curve]]',
        1,
    )
    node = decode(ring, "ring.toml")
    assert [link.label for link in node.peer_path(0, 1).links] == ["NVLink 2 x1"]
    # of two links between the same ends, the wider carries the copy
    assert node.host_path(1).peak() > node.host_path(0).peak()


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "a = " + "[" * 50_000,
        "name = 1" + "0" * 5000,
        "x = " + "{a=" * 500,
        'name = "x"\ncomponent = 3',
        'name = "x"\ncomponent = [[]]',
        'name = "x"\n[component]\nkind = "gpu"',
        'name = "x"\ncomponent = []',
        "\x00",
        "= = =",
        'name = "../../etc"\ncomponent = []',
        "date = 9999-99-99",
        "name = \"__import__('os').system('true')\"\ncomponent = []",
    ],
)
def test_hostile_text_is_an_input_error(hostile: str) -> None:
    message(hostile)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"#" * (MOST_BYTES + 5), "exceeds"), (b'name = "x"\n\xff\xfe', ":2: not UTF-8"), (None, "not there")],
)
def test_a_file_that_is_no_node_file_is_refused(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        load_node(str(path))
    with pytest.raises(InputError):
        load_node(str(tmp_path) + "/")


@pytest.mark.parametrize(
    ("short", "words"),
    [
        ("pcie:", "pcie:GENERATIONxLANES"),
        ("c2c:1x2", "pcie:GENERATIONxLANES"),
        ("pcie:3x16x2", "pcie:GENERATIONxLANES"),
        ("pcie:9x16", "no such generation; generations 1 to 6"),
        ("pcie:3x15", "no such lanes; .* 1 to 6 with 1, 2, 4, 8, 12, 16 or 32 lanes, as in pcie:5x16"),
        ("nvlink:2x0", "no such links; generations 1 to 5 with 1 to 72 links, as in nvlink:4x18"),
    ],
)
def test_a_wrong_link_in_short_names_the_forms_or_the_numbers(short: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_node(short)


def test_a_pcie_link_has_sixteen_lanes_unless_it_says_otherwise() -> None:
    assert load_node("pcie:3").host_path(0).peak() == pytest.approx(15.75e9, rel=1e-3)
    assert load_node(" PCIe:5 ") == load_node("pcie:5x16")
    assert load_node("pcie:3x1").host_path(0).peak() == pytest.approx(984.6e6, rel=1e-3)
    assert load_node("nvlink:2") == load_node("nvlink:2x1")


@pytest.mark.parametrize(
    ("name", "node"),
    [("h100", "h100-sxm"), ("A100", "dgx-a100"), ("gh200", "gh200"), ("RTX 4090", "rtx-4090")],
)
def test_a_gpu_is_a_node_by_what_people_call_it(name: str, node: str) -> None:
    assert load_node(name) == load_node(node)


def test_every_alias_of_the_catalogue_names_a_node_and_none_hides_a_name() -> None:
    assert set(ALIASES.values()) <= set(catalogue_names())
    assert not set(ALIASES) & set(catalogue_names())


@pytest.mark.parametrize(
    ("misspelled", "first"),
    [
        ("mi356x", "mi355x"),
        ("rtx-4081", "rtx-4080"),
        ("h1000", "h100-sxm"),
        ("b200-sxm", "dgx-b200"),
        ("b200-192gb", "dgx-b200"),
        ("mi100x", "mi100"),
        ("h100-smx", "h100-sxm"),
    ],
)
def test_the_same_makers_names_are_offered_first(misspelled: str, first: str) -> None:
    amd = first.startswith("mi")
    with pytest.raises(InputError, match="did you mean") as refused:
        load_node(misspelled)
    offered = str(refused.value).split("did you mean ")[1].rstrip("?").split(" or ")
    assert first in offered
    assert offered[0].startswith(("mi", "rx", "vega")) == amd
    with pytest.raises(InputError, match="list them with `busfare nodes`"):
        load_node("zzzzzz")


def test_a_maze_of_links_is_read_in_bounded_time() -> None:
    ends = "\n".join(f'[[component]]\nkind = "memory"\nname = "m{n}"' for n in range(100))
    maze = f"""name = "maze"
{ends}
[[component]]
kind = "switch"
name = "s[0-49]"
[[component]]
kind = "gpu"
name = "g[0-99]"
[[link]]
kind = "pcie"
between = ["s[0-49]", "s[0-49]"]
generation = 3
lanes = 16
[[link]]
kind = "pcie"
between = ["s[0-9]", "g[0-99]"]
generation = 3
lanes = 16
""" + "".join(f'[[link]]\nkind = "memory"\nbetween = ["m{n}", "s49"]\n' for n in range(100))
    start = time.process_time()
    node = decode(maze, "maze.toml")
    assert time.process_time() - start < 5
    assert len(node.host_path(99).links) == 3


def test_too_many_components_are_refused_early() -> None:
    many = "".join(f'[[component]]\nkind = "gpu"\nname = "g{n}-[0-255]"\n' for n in range(5000))
    start = time.process_time()
    assert "limit of 256" in message('name = "many"\n' + many)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("part", ["a", '"="', '"#"', "'.'", '"\\""'])
@pytest.mark.parametrize("form", ["{0} = 1", "[{0}]", "x = {{ {0} = 1 }}", 'y = """\\""""\n{0} = 1'])
def test_keys_of_very_many_parts_are_refused_early(part: str, form: str) -> None:
    start = time.process_time()
    assert "a key of over 64 parts" in message(form.format(" . ".join([part] * 50_000)))
    assert time.process_time() - start < 5


def test_dots_in_texts_comments_and_lists_are_no_keys() -> None:
    dots = "." * 500
    lists = ", ".join(["1.5"] * 500)
    text = f'# {dots}\na = "{dots}"\nb = """\n{dots}\n"""\nc = [{lists}]\n'
    assert "parts" not in message(text)
