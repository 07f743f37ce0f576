"""The README's stage table says what the manifest says. `python -m tests.kit.test_readme` writes it anew."""

from grader import KIT
from grader.manifest import load_manifest

START = "<!-- stages: written by tests/kit/test_readme.py from grader/manifest.toml -->\n"
END = "<!-- end of stages -->\n"


def stage_table() -> str:
    stages = load_manifest().stages
    rows = [f"| {s.id} | [{s.title}](assignments/{s.handout}) | {s.points:g} | {len(s.checks)} |\n" for s in stages]
    return "| id | stage | points | checks |\n|---|---|---|---|\n" + "".join(rows)


def with_table(text: str) -> str:
    before, _, rest = text.partition(START)
    return before + START + stage_table() + END + rest.partition(END)[2]


def test_stage_table_is_current() -> None:
    text = (KIT / "README.md").read_text()
    assert text == with_table(text), "run: python -m tests.kit.test_readme"


if __name__ == "__main__":
    readme = KIT / "README.md"
    readme.write_text(with_table(readme.read_text()))
