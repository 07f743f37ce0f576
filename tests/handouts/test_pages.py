"""The coverage of worked numbers finds what no example has, and what the pages say of speed is what the checks ask."""

import ast
from collections.abc import Iterator

import pytest

from grader import KIT
from grader.manifest import Stage, load_manifest
from tests.handouts.pages import squeezed, uncovered, units

PAGE = """\
# Stage 3: a page

## The mathematics

By hand, in stages 7 and 9, n = 10:

| n | half |
|---|---|
| 10 | 5 |

Nothing is worked out here, though 3 rows are named.

```python
x = 1.000
```

## The contract

- T = 0 is handled for you.
- It takes 3 · 4 = 12 bytes.

## Usual mistakes

| symptom | cause | by hand |
|---|---|---|
| 7.125 is wrong | | n = 33, one more than 32 |

## Questions to think about

1. What is 1.234 + 4.321?
"""
WORDS = {0.25: "asks for a quarter of", 0.5: "for half"}


def test_units_are_the_page() -> None:
    assert " ".join(unit.text for unit in units(PAGE)) == squeezed(PAGE)


def test_numbers_without_an_example_are_found() -> None:
    found = {line.partition(" in: ")[2].strip("| "): line.partition(" in: ")[0] for line in uncovered(PAGE, [])}
    assert found == {
        "By hand, in stages 7 and 9, n = 10:": "10",
        "10 | 5": "10 5",
        "- It takes 3 · 4 = 12 bytes.": "3 4 12",
        "7.125 is wrong | | n = 33, one more than 32": "33 32",
    }


def test_a_text_covers_its_numbers_and_no_others() -> None:
    (left,) = uncovered(PAGE, ["n = 10:", "| 10 | 5 |", "3 · 4 = 12", "n = 33, one"])
    assert left.startswith("32 in: ")


def bands(stage: Stage) -> Iterator[tuple[str, float]]:
    """(check, part of the kit's speed that it asks for) for each check of a stage that judges time."""
    for node in ast.walk(ast.parse((KIT / f"grader/checks/{stage.id}.py").read_text())):
        match node:
            case ast.FunctionDef(decorator_list=[ast.Call(func=ast.Name("check"), args=[ast.Constant(str(name))]), *_]):
                for call in ast.walk(node):
                    match call:
                        case ast.Call(func=ast.Name("expect_band"), args=[_, ast.Constant(float(part))]):
                            yield name, part


TIMED = {stage: dict(bands(stage)) for stage in load_manifest().stages if dict(bands(stage))}


def test_stages_are_timed() -> None:
    assert [stage.id for stage in TIMED] == ["s09", "s11", "s12", "s13", "s16"]


@pytest.mark.parametrize("stage", TIMED, ids=lambda stage: stage.id)
def test_page_says_what_speed_each_check_asks_for(stage: Stage) -> None:
    page = squeezed((KIT / "assignments" / stage.handout).read_text()).lower()
    for check, part in TIMED[stage].items():
        assert f"check {check} {WORDS[part]}" in page
