"""launch.toml: what its grammar gives, and one sentence for everything else."""

from pathlib import Path

import pytest
from given.launch import Geometry, LaunchConfigError, LaunchFile

DIMS = {"T": 7, "H": 2048}


def launch_file(tmp_path: Path, text: str) -> LaunchFile:
    path = tmp_path / "launch.toml"
    path.write_text(text, encoding="utf-8")
    return LaunchFile(path)


def geometry(tmp_path: Path, block: str = "[32]", grid: str = "[1]", shared: str = "0") -> Geometry:
    text = f"[rmsnorm]\nblock = {block}\ngrid = {grid}\nshared = {shared}\n"
    return launch_file(tmp_path, text).geometry("rmsnorm", DIMS)


def failure(tmp_path: Path, **entries: str) -> str:
    with pytest.raises(LaunchConfigError) as caught:
        geometry(tmp_path, **entries)
    return str(caught.value)


def test_missing_extents_are_one(tmp_path: Path) -> None:
    assert geometry(tmp_path, '["min(256, H)"]', '["T", 2]', '"4 * block"') == ((256, 1, 1), (7, 2, 1), 1024)


def test_shared_may_be_left_out(tmp_path: Path) -> None:
    found = launch_file(tmp_path, "[rope]\nblock = [8, 4, 2]\ngrid = [3, 2, 1]\n").geometry("rope", {})
    assert found == Geometry((8, 4, 2), (3, 2, 1), 0)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("T", 7),
        (" 3 + T * 2 ", 17),
        ("(3 + T) * 2", 20),
        ("H // 3 - 1", 681),
        ("cdiv(T * H, 256)", 56),
        ("cdiv(8, 4)", 2),
        ("max(1, min(T, 5))", 5),
    ],
)
def test_expressions(tmp_path: Path, expression: str, value: int) -> None:
    assert geometry(tmp_path, grid=f'["{expression}"]').grid[0] == value


@pytest.mark.parametrize(
    "expression",
    [
        "T ** 2",
        "T / 2",
        "T % 2",
        "-T",
        "~T",
        "T if T else H",
        "T and H",
        "T < H",
        "[T]",
        "'T'",
        "True",
        "1.5",
        "T.real",
        "T[0]",
        "abs(T)",
        "min(T)",
        "cdiv(T, 1, 2)",
        "min(a=T, b=1)",
        "min(*T)",
        "lambda: T",
        "__import__('os')",
        "cdiv",
    ],
)
def test_nothing_else_is_an_expression(tmp_path: Path, expression: str) -> None:
    message = failure(tmp_path, grid=f'["{expression}"]')
    assert message.startswith("launch.toml [rmsnorm] grid")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        ({"grid": '["R"]'}, "unknown name R; known here: T, H"),
        ({"grid": '["T +"]'}, "cannot be parsed"),
        ({"grid": '["T // (T - 7)"]'}, "with T = 7 divides by zero"),
        ({"grid": '["block"]'}, "unknown name block"),
        ({"grid": '["T - 7"]'}, '"T - 7" with T = 7 is 0; it must be 1 to 2,147,483,647'),
        ({"grid": '[1, "T * 65535"]'}, "it must be 1 to 65,535"),
        ({"grid": '["' + "1 + " * 60 + '1"]'}, "longer than 200 characters"),
        ({"grid": "[1.5]"}, "1.5 is neither an integer nor an expression"),
        ({"grid": "[true]"}, "True is neither"),
        ({"grid": f"[0x{'f' * 5000}]"}, "the integer is too large"),
        ({"grid": f"[[0x{'f' * 5000}]]"}, "a list is neither"),
        ({"grid": '"T"'}, "wanted a list of 1 to 3 entries"),
        ({"grid": "[]"}, "wanted a list of 1 to 3 entries"),
        ({"grid": "[1, 1, 1, 1]"}, "wanted a list of 1 to 3 entries"),
        ({"block": "[0]"}, "[rmsnorm] block"),
        ({"block": "[1025]"}, "it must be 1 to 1,024"),
        ({"block": "[64, 32]"}, "2,048 threads; a block holds at most 1,024"),
        ({"block": "[1, 1, 65]"}, "it must be 1 to 64"),
        ({"shared": '"T - 8"'}, "[rmsnorm] shared"),
        ({"shared": "[4]"}, "neither an integer nor an expression"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, entries: dict[str, str], wanted: str) -> None:
    message = failure(tmp_path, **entries)
    assert wanted in message
    assert "launch.toml [rmsnorm]" in message


def test_todo_entries_are_not_implemented(tmp_path: Path) -> None:
    file = launch_file(
        tmp_path, '[rope]\nblock = "TODO s04.2"\ngrid = [1]\n[silu_mul]\nblock = [1]\ngrid = "TODO s02.3"'
    )
    for kernel, stub in (("rope", "s04.2"), ("silu_mul", "s02.3")):
        with pytest.raises(NotImplementedError, match=stub):
            file.geometry(kernel, DIMS)


def test_one_bad_entry_costs_one_kernel(tmp_path: Path) -> None:
    file = launch_file(tmp_path, "rope = 3\n[softmax]\nblock = [1]\ngrid = [1]\n[argmax]\nblocks = [1]")
    assert file.geometry("softmax", {}) == ((1, 1, 1), (1, 1, 1), 0)
    for kernel, wanted in (
        ("rope", r"no table \[rope\]"),
        ("attention", r"no table"),
        ("argmax", "unknown key blocks"),
    ):
        with pytest.raises(LaunchConfigError, match=wanted):
            file.geometry(kernel, {})


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    for text in ("[rope", "[rope]\nblock = [1", "[a]\n[a]", "x = " + "[" * 5000):
        with pytest.raises(LaunchConfigError, match=r"launch\.toml: is not valid TOML"):
            launch_file(tmp_path, text)
    with pytest.raises(LaunchConfigError, match=r"\(.* line 2, .*; expressions need quotes\): grid = \[cdiv\(T, 2\)\]"):
        launch_file(tmp_path, "[rope]\ngrid = [cdiv(T, 2)]")
    (tmp_path / "launch.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(LaunchConfigError, match="is not valid TOML"):
        LaunchFile(tmp_path / "launch.toml")
    with pytest.raises(LaunchConfigError, match="cannot be read"):
        LaunchFile(tmp_path / "missing" / "launch.toml")
