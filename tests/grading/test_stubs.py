"""Stubs are found where they stand, and not in comments, texts or broken files."""

from pathlib import Path

import pytest

from grader.grading.stubs import find_stubs


def stubs_of(tmp_path: Path, name: str, text: str) -> list[tuple[str, int]]:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    found = find_stubs(tmp_path)
    assert all(stub.file == name for stub in found)
    return [(stub.id, stub.line) for stub in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('void f() {\n  NOT_IMPLEMENTED("s03.1");  // TODO s03.1: hint\n}', [("s03.1", 2)]),
        ('NOT_IMPLEMENTED ( "s03.10" ) ;\nNOT_IMPLEMENTED(\n"s03.2");', [("s03.10", 1), ("s03.2", 2)]),
        ('// NOT_IMPLEMENTED("s03.1");', []),
        ('// a line that goes on \\\nNOT_IMPLEMENTED("s03.1");', []),
        ('/* NOT_IMPLEMENTED("s03.1");\n */ NOT_IMPLEMENTED("s03.2");', [("s03.2", 2)]),
        ('/* never closed NOT_IMPLEMENTED("s03.1");', []),
        ('const char *s = "// \\" /*"; NOT_IMPLEMENTED("s03.1");', [("s03.1", 1)]),
        ('const char *s = R"(NOT_IMPLEMENTED("s03.1"))";', []),
        ("char c = '\"'; NOT_IMPLEMENTED(\"s03.1\"); char d = '\"';", [("s03.1", 1)]),
        ("int n = 1'000; NOT_IMPLEMENTED(\"s03.1\"); int m = 1'000;", [("s03.1", 1)]),
        ('MY_NOT_IMPLEMENTED("s03.1"); NOT_IMPLEMENTED(id);', []),
        ("", []),
    ],
)
def test_cuda(text: str, found: list[tuple[str, int]], tmp_path: Path) -> None:
    assert stubs_of(tmp_path, "kernels/a.cu", text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('def f():\n    raise NotImplementedError("s08.2")  # TODO s08.2: hint', [("s08.2", 2)]),
        ('# raise NotImplementedError("s08.2")', []),
        ('"""raise NotImplementedError("s08.2")"""', []),
        ('raise NotImplementedError("later")', []),
        ("raise NotImplementedError", []),
        ('def f(:\n    raise NotImplementedError("s08.2")', []),
    ],
)
def test_python(text: str, found: list[tuple[str, int]], tmp_path: Path) -> None:
    assert stubs_of(tmp_path, "model.py", text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[rmsnorm]\nblock = "TODO s03.2"\ngrid = "TODO s03.2"\n', [("s03.2", 2)]),
        ('[a]\n# TODO s03.1\nblock = [32]\n[b]\nblock = "TODO s03.2"', [("s03.2", 5)]),
        ('[a]\nblock = [32]  # "TODO s03.1"\n', []),
        ('[a\nblock = "TODO s03.2"', []),
    ],
)
def test_launch_file(text: str, found: list[tuple[str, int]], tmp_path: Path) -> None:
    assert stubs_of(tmp_path, "launch.toml", text) == found


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ['"' + '\\"' * 500_000, 'R"(' * 300_000, "'" + "\\'" * 500_000])
def test_what_never_ends_is_read_once(text: str, tmp_path: Path) -> None:
    assert stubs_of(tmp_path, "a.cu", text) == []


def test_a_mark_of_byte_order_is_no_text(tmp_path: Path) -> None:
    assert stubs_of(tmp_path, "launch.toml", '\ufeff[a]\nblock = "TODO s03.2"') == [("s03.2", 2)]


def test_files_that_cannot_be_read_have_none(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe")
    (tmp_path / "b.cu").write_bytes(b"\xff")
    (tmp_path / "c.toml").write_bytes(b"\x00")
    (tmp_path / "d.txt").write_text('NOT_IMPLEMENTED("s03.1")')
    (tmp_path / "e.cu").mkdir()
    assert find_stubs(tmp_path) == []
