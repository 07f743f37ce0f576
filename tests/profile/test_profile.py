"""`python -m grader profile`: what it says of kernels, and the page that it writes. No kernel here is a solution."""

import io
import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from grader.checking.api import BF16, Failure, Out, Worker
from grader.checks.support.parallelism import expect_parallel
from grader.cli import main
from grader.observe.counters import Profile, Site, WarpRequest
from grader.observe.traffic import advice, busiest, lane_step, most_wasteful, totals, uncoalesced
from grader.profile import launches
from grader.profile.launches import ProfilingWorker
from grader.profile.page import page
from grader.profile.pictures import bank_picture, sector_picture
from grader.profile.table import kernel_table
from grader.worker.connection import Deadlines
from tests.submissions import write_engine
from tests.tools import interrupts_enabled

WRONG = """#include <cuda_bf16.h>
// a kernel of <script>alert("head")</script> &amp; others
__device__ float taken(const __nv_bfloat16* x) {
    return __bfloat162float(*x);  // <b onclick='f("x")'>
}
extern "C" __global__ void matmul_naive(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* w,
                                        int M, int N, int K) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;  // <script>alert("body")</script>
    float sum = 0;
    for (int k = 0; k < K; k++)
        if (i < M) sum += taken(x + i * K + k);
    __syncthreads();
    if (i < M * N) out[i] = __float2bfloat16(sum);
}
extern "C" __global__ void matmul_tiled(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* w,
                                        int M, int N, int K) {
    NOT_IMPLEMENTED("s06.2");
}
"""
CHUNKS = """extern "C" __global__ void softmax(float* out, const float* x, int num_rows, int num_columns) {
    const int chunk = (num_columns + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * chunk;
    for (int i = begin; i < min(begin + chunk, num_columns); i++) {
        const float value = x[blockIdx.x * num_columns + i];
        out[blockIdx.x * num_columns + i] = value;
    }
}
"""
LAUNCH = """
[matmul_naive]
block = [64]
grid = ["cdiv(M * N, 64)"]

[matmul_tiled]
block = ["TODO s06.2"]
grid = [1]
"""


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its matmul_naive is wrong and reads x by columns; its matmul_tiled is not begun."""
    folder = tmp_path_factory.mktemp("submission")
    engine = write_engine(folder)
    (engine / "kernels/matmul.cu").write_text(WRONG)
    (engine / "launch.toml").write_text(LAUNCH)
    return folder


class Page(HTMLParser):
    """The names and attributes of a page's tags, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def profile(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    code = main(["profile", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert "nan" not in out.lower()
    return code, out, err


def test_a_kernel_that_reads_by_columns(
    submission: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    target = tmp_path / "page.html"
    code, out, _ = profile(capsys, submission, "--stage", 6, "--html", target)
    assert code == 0
    rows = {row.split()[0]: row for row in out.splitlines() if re.match(r" *\d+  ", row)}
    assert "return __bfloat162float(*x);" in rows["4"]
    assert rows.keys() == {"4", "12", "13"}
    assert "barrier × 1" in rows["12"]
    assert "100%" in rows["13"]
    assert "matmul_naive(out[256, " in out  # the launch that moves the most
    assert re.search(
        r"line 4: each request touches \d+\S* sectors where \d\S* would do: neighbouring threads load ", out
    )
    assert "matmul_tiled: nothing to profile yet; write s06.2 in engine/kernels/matmul.cu:17 first." in out
    shown = Page(target)
    assert shown.tags.count("script") == 1
    assert shown.tags.count("svg") == 2
    assert not {"onclick", "src", "href"} & shown.attributes
    assert "b" not in shown.tags[shown.tags.index("table") :]
    assert '// <script>alert("body")</script>' in shown.text
    assert """// <b onclick='f("x")'>""" in shown.text
    assert not re.search(r"nan|inf\b|https?:", target.read_text(), re.IGNORECASE)


def test_one_check_and_one_kernel(submission: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.html"
    code, out, _ = profile(capsys, submission, "--check", "s06.1", "--kernel", "matmul_naive", "--html", target)
    assert (code, out.count("\nmatmul_")) == (0, 1)
    assert target.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name a stage or a check: make profile STAGE=6"),
        (("--stage", "10"), "stage s10 has no kernels of its own; those with kernels: s00, s02"),
        (("--stage", "99"), "There is no stage '99'"),
        (("--stage", "6", "--kernel", "x"), "stage s06 has no kernel 'x'; it has matmul_naive and matmul_tiled."),
        (("--stage", "5", "--check", "s06.1"), "check s06.1 is none of stage s05."),
        (("--stage", "6", "--html", "no/such/folder/page.html"), "give the name of a file in a folder that exists."),
    ],
)
def test_wrong_usage(submission: Path, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], told: str) -> None:
    code, _, err = profile(capsys, submission, *arguments)
    assert code == 2
    assert told in err


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("out[i] = unknown;", "vector_add: no launch came to its end (s00.1, COMPILE_ERROR: "),
        ("__trap();", "vector_add: no launch came to its end (s00.1, "),
        (
            'NOT_IMPLEMENTED("s00.1");',
            "vector_add: nothing to profile yet; write s00.1 in engine/kernels/vector_add.cu",
        ),
    ],
)
def test_nothing_to_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, told: str) -> None:
    write_engine(tmp_path, body)
    code, out, _ = profile(capsys, tmp_path, "--stage", 0, "--html", tmp_path / "page.html")
    assert code == 1
    assert told in out
    assert not (tmp_path / "page.html").exists()


ENDLESS = "for (volatile int k = 0; k >= 0;) {}"


def test_an_endless_kernel_is_launched_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = []
    launch = ProfilingWorker._launch

    def counted(worker: ProfilingWorker, op: str, *arguments: Any) -> Any:
        launched.append(op)
        return launch(worker, op, *arguments)

    monkeypatch.setattr(ProfilingWorker, "_launch", counted)
    monkeypatch.setattr(launches, "FIRST_SECONDS", 0.5)
    write_engine(tmp_path, ENDLESS)
    code, out, _ = profile(capsys, tmp_path, "--stage", 0, "--html", tmp_path / "page.html")
    assert (code, launched) == (1, ["vector_add"])
    assert "vector_add: no launch came to its end (s00.1, TIMEOUT: vector_add did not return within 0.5 s" in out


def test_ctrl_c_does_not_wait_for_an_endless_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = ProfilingWorker._launch

    def interrupted(*given: Any) -> Any:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        return launch(*given)

    monkeypatch.setattr(ProfilingWorker, "_launch", interrupted)
    write_engine(tmp_path, ENDLESS)
    with interrupts_enabled():
        assert profile(capsys, tmp_path, "--stage", 0, "--html", tmp_path / "page.html") == (130, "", "")


def test_rows_are_so_wide_that_the_stride_of_a_loop_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = write_engine(tmp_path)
    (engine / "kernels/softmax.cu").write_text(CHUNKS)
    (engine / "launch.toml").write_text('[softmax]\nblock = [256]\ngrid = ["R"]\n')
    _, out, _ = profile(capsys, tmp_path, "--stage", 5, "--html", tmp_path / "page.html")
    assert "softmax(out[16, 2048] f32" in out
    assert "neighbouring threads load addresses 32 bytes apart" in " ".join(out.split())


@pytest.fixture(scope="module")
def worker(submission: Path) -> Iterator[Worker]:
    worker = Worker(submission / "engine", Deadlines(), emulated=True)
    yield worker
    worker.end()


def test_parallelism_remarks_on_what_is_not_coalesced(worker: Worker) -> None:
    few, many = ((Out((m, 64)), np.ones((m, 128), BF16), np.ones((64, 128), BF16)) for m in (8, 64))
    with pytest.raises(Failure):  # its kernel is wrong, too
        expect_parallel(worker, worker, "matmul_naive", few, many)
    (remark,) = worker.take_remarks()
    assert remark == (
        "matmul_naive, uncoalesced: line 4: each request touches 32 sectors where 2 would do: neighbouring threads "
        "load addresses 256 bytes apart; let threadIdx.x run along the dimension whose elements lie side by side."
    )
    assert worker.take_remarks() == []
    assert busiest(worker.count("matmul_naive", *many)[1].sites) == " (line 4 alone for 16,384)"


def test_what_the_plan_of_a_handout_loads_uncoalesced_is_not_remarked_on(worker: Worker) -> None:
    few, many = ((Out((m, 64)), np.ones((m, 128), BF16), np.ones((64, 128), BF16)) for m in (8, 64))
    with pytest.raises(Failure):
        expect_parallel(worker, worker, "matmul_naive", few, many, planned=("x",))
    assert worker.take_remarks() == []
    with pytest.raises(Failure):
        expect_parallel(worker, worker, "matmul_naive", few, many, planned=("w",))
    assert len(worker.take_remarks()) == 1


def test_the_line_of_an_array_is_one_that_loads_it(worker: Worker) -> None:
    sites = worker.count("matmul_naive", Out((8, 64)), np.ones((8, 128), BF16), np.ones((64, 128), BF16))[1].sites
    assert busiest(sites, "out") == busiest(sites, "w") == ""
    assert busiest(sites, "x") == busiest(sites)


# Sentences

NOWHERE = (None,) * 32


def request(offsets: Sequence[int | None], size: int = 4, origin: int = 0) -> WarpRequest:
    every = (*offsets, *NOWHERE)[:32]
    return WarpRequest(1, 1, size, (0, 0, 0), 0, "x", 4, origin, every)


def site(offsets: Sequence[int | None], cost: int, ideal: int, **fields: object) -> Site:
    base = Site("k.cu", 7, "load", "global", 10, 320, 1280, 0, 10 * cost, 10 * ideal, 0, request(offsets))
    return replace(base, **fields)  # type: ignore[arg-type]


def told(*sites: Site) -> list[str]:
    return advice(Profile("k", (1, 1, 1), (32, 1, 1), 0, 0, sites))


STEPS = [
    (
        [4096 * lane for lane in range(32)],
        32,
        "neighbouring threads load addresses 4,096 bytes apart; let ",
    ),
    ([4 * lane + 4 for lane in range(32)], 5, "what the threads of a warp load begins in the middle of a sector"),
    ([4 * lane + lane // 8 * 64 for lane in range(32)], 6, "what the threads of a warp load lies in 4 pieces"),
    ([lane * lane * 32 for lane in range(32)], 32, "the addresses that the threads of a warp load are scattered"),
]


@pytest.mark.parametrize(("offsets", "cost", "why"), STEPS)
def test_sentences_on_global_memory(offsets: list[int], cost: int, why: str) -> None:
    (sentence,) = told(site(offsets, cost, 4))
    assert sentence.startswith(f"line 7: each request touches {cost} sectors where 4 would do: {why}")
    assert most_wasteful([site(offsets, cost, 4)]) == sentence
    assert bool(uncoalesced([site(offsets, cost, 4)])) == (cost == 32)


def test_sentences_on_banks_and_atomics() -> None:
    column = site([128 * lane for lane in range(32)], 32, 1, space="shared")
    (sentence,) = told(column)
    assert sentence.startswith("line 7: shared memory serves each request in 32 passes where 1 would do: neighbouring ")
    assert "128 bytes apart" in sentence
    (sentence,) = told(site([0] * 32, 1, 1, kind="atomic", addresses=10))
    assert sentence.startswith("line 7: 32 lanes of a warp update one address")


def test_praise_where_nothing_is_wasted() -> None:
    (sentence,) = told(site([4 * lane for lane in range(32)], 4, 4))
    assert sentence.startswith("Little is wasted")
    assert uncoalesced([site([4 * lane for lane in range(32)], 4, 4)]) == most_wasteful([]) == busiest([]) == ""


def test_praise_counts_the_few_conflicts() -> None:
    (sentence,) = told(site([4 * lane for lane in range(32)], 21, 20, space="shared"))
    assert sentence.startswith("Little is wasted")
    assert sentence.endswith(" (10 of 210 passes over shared memory are conflicts).")


def test_columns_without_anything_leave_their_room_to_the_source() -> None:
    def head(*sites: Site) -> list[str]:
        console = Console(file=io.StringIO(), width=100)
        console.print(*kernel_table(Profile("k", (1, 1, 1), (32, 1, 1), 0, 0, sites), "k", {}))
        return next(line.split() for line in console.file.getvalue().splitlines() if "Line" in line)  # type: ignore[attr-defined]

    plain, column = site([4 * lane for lane in range(32)], 4, 4), site([0], 1, 1, space="shared")
    assert head(plain) == ["Line", "Source", "Requests", "Bytes", "Sectors", "Used"]
    assert head(plain, column) == [*head(plain), "Conflicts"]
    assert head(replace(plain, divergent=5)) == [*head(plain), "Also"]


def test_totals_without_global_memory_have_no_efficiency() -> None:
    barrier = site([], 0, 0, kind="barrier", space="", bytes=0, worst=None)
    sums = totals(Profile("k", (5, 1, 1), (64, 1, 1), 0, 0, (barrier,)), [barrier])
    assert (sums.efficiency, sums.barriers, sums.requests) == (None, 1.0, 0)


def test_steps_of_lanes() -> None:
    assert lane_step(request([0])) is None
    assert lane_step(request([0, 8, None, 24, 32])) == 8
    assert lane_step(request([0, 8, 24, 48])) is None


# Drawings


@pytest.mark.parametrize(
    "offsets", [[0], [None, 12], [32 * lane for lane in range(32)], [2**40 * lane for lane in range(32)], [-64, 64]]
)
def test_sectors_are_drawn(offsets: list[int | None]) -> None:
    drawn = sector_picture(request(offsets, origin=64))
    lanes = [offset for offset in offsets if offset is not None]
    assert drawn.count('<rect class="lane"') == drawn.count("<path") == len(lanes)
    assert drawn.count('<rect class="absent"') == 32 - len(lanes)
    assert drawn.count('<rect class="idle"') == len({(64 + offset) // 32 for offset in lanes})
    assert_in_the_frame(drawn)


def test_an_access_across_two_sectors_is_drawn_in_both() -> None:
    drawn = sector_picture(request([24], size=16))
    assert (drawn.count('class="used"'), drawn.count("<path")) == (2, 1)


@pytest.mark.parametrize(
    ("offsets", "size", "words", "conflicts"),
    [
        ([128 * lane for lane in range(32)], 4, 1, 31),
        ([132 * lane for lane in range(32)], 4, 32, 0),
        ([0] * 32, 4, 1, 0),
        ([8 * lane for lane in range(32)], 8, 64, 0),
        ([32 * lane for lane in range(32)], 16, 64, 64),
    ],
)
def test_banks_are_drawn(offsets: list[int], size: int, words: int, conflicts: int) -> None:
    drawn = bank_picture(request(offsets, size))
    assert (drawn.count('<rect class="word"'), drawn.count('<rect class="conflict"')) == (words, conflicts)
    assert_in_the_frame(drawn)


def assert_in_the_frame(drawn: str) -> None:
    width, height = map(float, re.findall(r'viewBox="0 0 (\d+) (\d+)"', drawn)[0])
    for x, y, w, h in re.findall(r'x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', drawn):
        assert 0 <= float(x) <= float(x) + float(w) <= width
        assert 0 <= float(y) <= float(y) + float(h) <= height


def test_a_page_on_nothing_is_a_page() -> None:
    assert "<h1>" in page("<starter>", {}, {})
    assert "<starter>" not in page("<starter>", {}, {})
