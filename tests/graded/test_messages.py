"""Small wrong submissions, and the words that their students read: each is the solutions with one edit or two.

The words stand in the message or the hint of the named check; `never` are words that would mislead.
"""

from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import pytest

from grader import KIT
from tests.graded.grading import explanations, grade, verdicts

KERNEL = "The values are those of a kernel that"


@dataclass(frozen=True)
class Wrong:
    """An edit of a file below engine/, as pairs of what is replaced by what; the check that fails, and its words."""

    file: str
    edits: tuple[tuple[str, str], ...]
    check: str
    says: str
    never: str = ""


NAIVE = "[matmul_naive]\n# s06.1\nblock = [16, 16]\n"
GRID, EXCHANGED = (f'{NAIVE}grid = ["cdiv({x}, 16)", "cdiv({y}, 16)"]' for x, y in ("NM", "MN"))
STORE = "__float2bfloat16(__bfloat162float(x[row + i]) * reciprocal * __bfloat162float(weight[i]));"
CASES = {
    "the first kernel of a model that went wrong": Wrong(
        "kernels/silu_mul.cu", (("expf(-", "expf("),), "s02.10",
        "The logits are wrong. The first call whose output is wrong is silu_mul in layer 0: ", "residual_add",
    ),
    "small errors of a model": Wrong(
        "kernels/rmsnorm.cu", (("const float reciprocal = rsqrtf(total / hidden_size + eps);",
        "const float reciprocal = rsqrtf(total / hidden_size + eps) * 1.004f;"),), "s03.10",
        "Each call alone is within its allowed error, but together they are too far off",
    ),
    "infinity over infinity": Wrong(
        "kernels/attention.cu", (("expf(scores[key] - maximum)", "expf(scores[key])"),), "s07.5",
        f"{KERNEL} does not subtract the maximum before expf.", "nothing was written",
    ),
    "zero over zero": Wrong(
        "kernels/attention.cu", (("num_visible > 0 ? weighted / total : 0.0f", "weighted / total"),), "s07.3",
        f"{KERNEL} has no case of its own for a query that sees no key: 0 / 0 is NaN", "nothing was written",
    ),
    "a position behind a context": Wrong(
        "kernels/decode_attention.cu", (("= context_lens[sequence];", "= context_lens[sequence] + 1;"),), "s09.2",
        f"{KERNEL} reads one position more than a context has", "nothing was written",
    ),
    "another row of the cache": Wrong(
        "kernels/decode_attention.cu", (("(slots[sequence])", "(sequence)"),), "s09.2",
        "or that reads row b of the caches, not row slots[b].", "nothing was written",
    ),
    "keys by heads": Wrong(
        "kernels/attention.cu", (("static_cast<long long>(num_kv_heads) * head_dim;", "head_dim;"),
        ("k + kv_head * head_dim", "k + kv_head * S * head_dim"),
        ("v + kv_head * head_dim", "v + kv_head * S * head_dim")),
        "s07.1", f"{KERNEL} reads k and v as [Hkv, S, D]: it is [S, Hkv, D].", "first token",
    ),
    "bytes of the array that is counted": Wrong(
        "kernels/rmsnorm.cu", (("const float reciprocal = rsqrtf(total / hidden_size + eps);",
        """float again = 0.0f;
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        again += __bfloat162float(x[row + i]) + __bfloat162float(x[row + i / 2]);
    }
    const float reciprocal = rsqrtf(total / hidden_size + eps) + (again == INFINITY);"""),), "s03.8",
        "of x (line 74 alone for ",
    ),
    "addresses in 32 bits": Wrong(
        "kernels/paged_attention.cu", (("const long long block = table", "const int block = table"),
        ("const long long slot", "const int slot"), ("const long long row = (", "const int row = (")), "s15.9",
        "In a pool of 4 blocks the same is right, so it is the size of the pool: an int holds at most 2^31 - 1",
    ),
    "arithmetic on bf16": Wrong(
        "kernels/rmsnorm.cu", ((STORE, "x[row + i] * reciprocal * weight[i];"),), "s03.1",
        "__nv_bfloat16 and float do not mix in one operation: convert with __bfloat162float(x) before you compute",
        "BrainCoding",
    ),
    "a pointer of another type": Wrong(
        "kernels/residual_add.cu", (("__nv_bfloat16* __restrict__ x", "float* __restrict__ x"),), "s02.2",
        "residual_add declares float * for x (parameter #0, from 0), but its elements are __nv_bfloat16, of 2 bytes",
    ),
    "the weight as [K, N]": Wrong(
        "kernels/matmul.cu", (("__bfloat162float(w_row[k])", "__bfloat162float(w[k * N + n])"),), "s06.1",
        f"{KERNEL} reads w as [K, N], w[k * N + n] (in cuBLAS: OP_N for OP_T): it is [N, K], w[n * K + k].",
    ),
    "a grid with x for y": Wrong(
        "launch.toml", ((GRID, EXCHANGED),), "s06.1",
        "Only the last column (16) is NaN, as if never written: no thread wrote there. Look at bounds and conditions "
        "around the store, and at grid and block of the launch (launch.toml): too few, or x and y exchanged.",
    ),
    "too few blocks in place": Wrong(
        "launch.toml", (('"cdiv(T * H, 256)"', '"max(1, T * H // 256)"'),), "s02.2",
        "Only the last column (256) is as it was before the call: no thread wrote there",
    ),
    "an expression that is 0": Wrong(
        "launch.toml", (('"cdiv(T * H, 256)"', '"T * H // 256"'),), "s02.2",
        'launch.toml [residual_add] grid: "T * H // 256" with T = 3, H = 85 is 0; it must be 1 to 2,147,483,647',
    ),
    "a kernel of another name": Wrong(
        "kernels/embedding.cu", (("void embedding(", "void embeding("),), "s02.1",
        'kernels/embedding.cu has no kernel embedding; those it declares: embeding. Write extern "C" __global__ void',
    ),
    "an endless loop": Wrong(
        "kernels/rmsnorm.cu", (("half > 0; half /= 2", "half >= 0; half /= 2"),), "s03.1",
        "Line 29: half is halved and never gets below 0: let the loop end at half > 0.",
    ),
}  # fmt: skip


def groups() -> list[list[Wrong]]:
    """The cases in submissions of their own, with no two of one stage, which could see each other's mistake."""
    found: list[list[Wrong]] = []
    for wrong in CASES.values():
        stage = wrong.check.partition(".")[0]
        free = (group for group in found if all(not other.check.startswith(stage) for other in group))
        group = next(free, None)
        if group is None:
            found.append(group := [])
        group.append(wrong)
    return found


def submission(folder: Path, *wrong: Wrong) -> Path:
    copytree(KIT / "solutions", folder)
    for path, find, replace in ((folder / "engine" / one.file, *edit) for one in wrong for edit in one.edits):
        source = path.read_text()
        assert find in source
        path.write_text(source.replace(find, replace))
    return folder


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[Wrong, str]:
    """What the student reads of each case; s09.1 passes, without which stage 15 would be skipped."""
    folder = tmp_path_factory.mktemp("messages")
    texts: dict[Wrong, str] = {}
    for number, group in enumerate(groups()):
        checks = [option for wrong in group for option in ("--check", wrong.check)]
        submitted = submission(folder / str(number), *group)
        told = explanations(grade(submitted, "--device", "cpu", "--check", "s09.1", *checks))
        texts |= {wrong: told[wrong.check] for wrong in group}
    return texts


@pytest.mark.parametrize("wrong", CASES.values(), ids=CASES)
def test_a_message_names_the_cause(wrong: Wrong, told: dict[Wrong, str]) -> None:
    assert wrong.says in told[wrong]
    assert not wrong.never or wrong.never not in told[wrong]


def test_one_mistake_in_many_checks_is_told_once(tmp_path: Path) -> None:
    edit = "head_dim) * scale", "head_dim)"
    wrong = submission(tmp_path / "it", Wrong("kernels/attention.cu", (edit,), "s07.1", ""))
    output = " ".join(grade(wrong, "--device", "cpu", "--stage", "7")["output"].split())
    assert f"hint {KERNEL} does not multiply the scores by scale." in output
    assert "same in s07.2, s07.3, s07.4," in output


def test_a_mask_fails_only_the_checks_of_masks(tmp_path: Path) -> None:
    edit = "S - L + query + 1", "min(query + 1, S)"
    wrong = submission(tmp_path / "it", Wrong("kernels/attention.cu", (edit,), "s07.3", ""))
    found = verdicts(grade(wrong, "--device", "cpu", "--stage", "7"))
    assert [check for check, verdict in found.items() if verdict != "PASSED"] == ["s07.3", "s07.4", "s07.8"]


def test_few_integers_and_the_contract_s_names_are_shown(tmp_path: Path) -> None:
    edit = "static_cast<long long>(slots[sequence])", "static_cast<long long>(sequence)"
    wrong = submission(tmp_path / "it", Wrong("kernels/decode_attention.cu", (edit,), "s09.5", ""))
    (check,) = grade(wrong, "--device", "cpu", "--check", "s09.5")["stages"][0]["checks"]
    assert "slots[1] i32 = [1], context_lens[1] i32 = [1]" in check["evidence"]["case"]
    assert check["evidence"]["drawn"] == "D=8, Hkv=1, Hq / Hkv=1, lengths=[1], rise of the scores=0.0"


@pytest.mark.parametrize(("kernel", "other", "points"), [("flash", "flash_decode", 4), ("flash_decode", "flash", 3)])
def test_each_kernel_of_stage_11_has_checks_of_its_own(kernel: str, other: str, points: float, tmp_path: Path) -> None:
    wrong = tmp_path / "it"
    copytree(KIT / "solutions", wrong)
    stub = f"engine/kernels/{other}_attention.cu"
    (wrong / stub).write_bytes((KIT / "starter" / stub).read_bytes())
    results = grade(wrong, "--device", "cpu", "--stage", "11")
    assert results["total"] == points, kernel
    assert set(verdicts(results).values()) == {"PASSED", "NOT_IMPLEMENTED"}
