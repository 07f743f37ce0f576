"""The handouts say what manifest, stubs and launchers say, and their figures can be read.

`python -m tests.test_handouts` writes the tables of checks and stages, and the points of tasks, again.
"""

import ast
import inspect
import re
import runpy
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from given import ops
from given.contracts import CONTRACTS

from grader import KIT
from grader.manifest import Check, Stage, load_manifest

ASSIGNMENTS = KIT / "assignments"
FIGURES = ASSIGNMENTS / "figures"
GUIDE = ASSIGNMENTS / "README.md"
MANIFEST = load_manifest()
STAGES = pytest.mark.parametrize("stage", MANIFEST.stages, ids=lambda stage: stage.id)
PAGES = pytest.mark.parametrize(
    "page",
    [GUIDE, ASSIGNMENTS / "debugging.md", *(ASSIGNMENTS / s.handout for s in MANIFEST.stages)],
    ids=lambda p: p.name,
)
DRAWINGS = pytest.mark.parametrize("drawing", sorted(FIGURES.glob("*.svg")), ids=lambda drawing: drawing.stem)

SECTIONS = (
    "Goal",
    "Why it matters in a serving engine",
    "The mathematics",
    "The memory layout",
    "The contract",
    "Tasks",
    "Run the check",
    "Usual mistakes",
    "Questions to think about",
)
CHECKS_START = "<!-- checks: written by tests/test_handouts.py from grader/manifest.toml -->\n"
CHECKS_END = "<!-- end of checks -->\n"
STAGES_START = "<!-- stages: written by tests/test_handouts.py from grader/manifest.toml -->\n"
STAGES_END = "<!-- end of stages -->\n"

TASK_ROW = re.compile(r"^\| (s\d\d\.\d+) \| (.+) \| ([\d.]+) \|$", re.MULTILINE)
"""A row of the table of tasks; rows of the table of checks do not end in a number."""

SVG = "{http://www.w3.org/2000/svg}"
SMALLEST_FONT = 11


# Generated parts


def tasks(stage: Stage) -> list[str]:
    """Ids of the tasks that a student finds in the stage's files."""
    return [stub for stub in MANIFEST.stub_ids if stub.partition(".")[0] == stage.id]


def titles(stage: Stage) -> dict[str, str]:
    """The title of each check: the first line of the docstring of the function marked with its id."""
    found = {}
    for node in ast.walk(ast.parse((KIT / f"grader/checks/{stage.id}.py").read_text())):
        match node:
            case ast.FunctionDef(decorator_list=[ast.Call(func=ast.Name("check"), args=[ast.Constant(name)]), *_]):
                found[str(name)] = (ast.get_docstring(node) or "").partition("\n")[0]
    return found


def task_points(stage: Stage) -> dict[str, float]:
    """The points of each task: each check counts once, for the last of the tasks that it runs."""
    points = dict.fromkeys(tasks(stage), 0.0)
    for check in stage.checks:
        points[max(set(check.needs) & set(points), key=tasks(stage).index)] += check.points
    return points


def with_task_points(text: str, stage: Stage) -> str:
    points = task_points(stage)
    return TASK_ROW.sub(lambda row: f"| {row[1]} | {row[2]} | {points[row[1]]:g} |", text)


def check_table(stage: Stage) -> str:
    """The sum of the stage's points and a row per check."""
    named = titles(stage)

    def row(check: Check) -> str:
        run = [need for need in check.needs if need in tasks(stage)]
        return f"| {check.id} | {check.points:g} | {named[check.id]} | {', '.join(run)} |\n"

    head = f"\nThe checks, {stage.points:g} points together:\n\n"
    columns = "| check | points | what it checks | runs |\n|---|---|---|---|\n"
    return head + columns + "".join(map(row, stage.checks)) + "\n"


def stage_table() -> str:
    rows = [f"| {s.id} | [{s.title}]({s.handout}) | {s.points:g} | {len(s.checks)} |\n" for s in MANIFEST.stages]
    return "\n| stage | handout | points | checks |\n|---|---|---|---|\n" + "".join(rows) + "\n"


def replaced(text: str, start: str, content: str, end: str) -> str:
    """The text with other content between two marker lines; ValueError when one is missing."""
    before, rest = text[: text.index(start)], text[text.index(end) :]
    return before + start + content + rest


def handout(stage: Stage) -> str:
    return (ASSIGNMENTS / stage.handout).read_text()


def section(text: str, name: str) -> str:
    """The text below one heading, up to the next one of its level."""
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


# Handouts


@STAGES
def test_handout_has_every_section_in_order(stage: Stage) -> None:
    headings = re.findall(r"^## (.+)$", handout(stage), re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == list(SECTIONS)
    for name in SECTIONS:
        assert len(section(handout(stage), name).split()) > 15, name


@STAGES
def test_check_table_is_current(stage: Stage) -> None:
    text = handout(stage)
    assert text == replaced(text, CHECKS_START, check_table(stage), CHECKS_END), "run: python -m tests.test_handouts"


@STAGES
def test_tasks_are_those_of_the_manifest(stage: Stage) -> None:
    text = handout(stage)
    found = {task: cells.partition(" | ")[0] for task, cells, _ in TASK_ROW.findall(text)}
    assert list(found) == tasks(stage)
    for task, files in found.items():
        assert set(files.strip("`").split("`, `")) <= set(stage.files), task
    assert text == with_task_points(text, stage), "run: python -m tests.test_handouts"


@STAGES
def test_points_of_the_tasks_add_up_to_those_of_the_stage(stage: Stage) -> None:
    assert sum(float(points) for _, _, points in TASK_ROW.findall(handout(stage))) == stage.points


@STAGES
def test_kernels_are_those_of_the_stubs(stage: Stage) -> None:
    """Every kernel's C signature, launcher and names in launch.toml, for the kernel files of the stage."""
    contract = section(handout(stage), "The contract")
    for file in stage.files:
        for name, parameters in kernel_signatures(KIT / "starter/engine" / file) if file.endswith(".cu") else ():
            assert f'extern "C" __global__ void {name}({parameters})' in squeezed(contract), name
            if name != "vector_add":
                assert f"`ops.{name}({launcher_parameters(name)})`" in contract, name
                assert f"| `[{name}]` | {', '.join(launch_names(name))} |" in contract, name


def kernel_signatures(path: Path) -> list[tuple[str, str]]:
    """(name, parameters) of each kernel, without `__restrict__`, on one line."""
    found = re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', path.read_text())
    assert found, path
    return [(name, squeezed(parameters.replace("__restrict__ ", ""))) for name, parameters in found]


def launcher_parameters(name: str) -> str:
    parameters = inspect.signature(getattr(ops, name)).parameters.values()
    return ", ".join(f"{p.name}={p.default}" if p.default is not p.empty else p.name for p in parameters)


def launch_names(name: str) -> list[str]:
    """The dimension names of one kernel, in the order of its arguments."""
    symbols = " ".join(size for array in CONTRACTS[name].arrays for size in array.shape)
    return list(dict.fromkeys(re.findall(r"[A-Za-z]\w*", symbols)))  # "B+1" names B


def squeezed(text: str) -> str:
    return " ".join(text.split())


@PAGES
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@PAGES
def test_python_examples_compile(page: Path) -> None:
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)):
        compile(code, f"{page.name}, example {number + 1}", "exec")


def test_guide_lists_the_stages() -> None:
    text = GUIDE.read_text()
    assert text == replaced(text, STAGES_START, stage_table(), STAGES_END), "run: python -m tests.test_handouts"


# Figures


def images(page: Path) -> list[tuple[str, str]]:
    """(alternative text, path) of each image of a page."""
    return re.findall(r"!\[([^]]*)]\(([^)]+)\)", page.read_text())


@STAGES
def test_handout_has_figures_with_alternative_text(stage: Stage) -> None:
    shown = images(ASSIGNMENTS / stage.handout)
    assert shown
    for text, path in shown:
        assert len(text) >= 20, path


def test_every_figure_is_shown_and_drawn_by_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {Path(path).name for page in ASSIGNMENTS.glob("*.md") for _, path in images(page)}
    assert {path.name for path in FIGURES.glob("*.svg")} == shown
    monkeypatch.setattr(sys, "argv", ["draw.py", str(tmp_path)])
    monkeypatch.syspath_prepend(str(FIGURES))
    runpy.run_path(str(FIGURES / "draw.py"), run_name="__main__")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        path.name: path.read_text() for path in FIGURES.glob("*.svg")
    }, "run: python assignments/figures/draw.py"


@DRAWINGS
def test_figure_tells_what_it_shows(drawing: Path) -> None:
    root = ElementTree.parse(drawing).getroot()
    assert len(root.findtext(f"{SVG}title", "")) > 10
    assert len(root.findtext(f"{SVG}desc", "")) > 80
    panel = root.find(f"{SVG}rect")
    assert panel is not None
    assert panel.get("fill") == "#ffffff"
    assert float(panel.get("width", 0)) >= float(root.get("width", 0)) - 1


@DRAWINGS
def test_text_of_a_figure_is_legible(drawing: Path) -> None:
    root = ElementTree.parse(drawing).getroot()
    labels = list(text_extents(root))
    for text, (left, top, right, bottom), size in labels:
        assert size >= SMALLEST_FONT, text
        assert min(left, top) >= 2, text
        assert right <= float(root.get("width", 0)) - 2, text
        assert bottom <= float(root.get("height", 0)) - 2, text
    for (text, one, _), (other_text, other, _) in combinations(labels, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, f"{text!r} and {other_text!r} overlap"


def text_extents(root: ElementTree.Element) -> Iterator[tuple[str, tuple[float, float, float, float], float]]:
    """Each line of text with (left, top, right, bottom), estimated from the fonts' usual widths, and its size."""
    for element in root.iter(f"{SVG}text"):
        text, size = element.text or "", float(element.get("font-size", 0))
        each = 0.602 if "Mono" in element.get("font-family", "") else 0.62 if element.get("font-weight") else 0.55
        width, x, y = each * size * len(text), float(element.get("x", 0)), float(element.get("y", 0))
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[element.get("text-anchor", "start")]
        yield text, (left, y - 0.75 * size, left + width, y + 0.15 * size), size


if __name__ == "__main__":
    for one in MANIFEST.stages:
        page = ASSIGNMENTS / one.handout
        current = with_task_points(page.read_text(), one)
        page.write_text(replaced(current, CHECKS_START, check_table(one), CHECKS_END))
    GUIDE.write_text(replaced(GUIDE.read_text(), STAGES_START, stage_table(), STAGES_END))
