"""Every number of the handouts' worked examples is what comes out when it is recomputed.

`tests/handouts/examples/` has a module a stage. Its functions yield passages of the page with the numbers computed; the
page must have each of them, and each number of what it works out must lie in one.
"""

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from types import ModuleType

import pytest

from grader import KIT
from grader.manifest import load_manifest
from tests.handouts.examples import s00, s01, s02, s03, s04, s05, s06, s07, s08, s09, s10, s11, s12, s13, s14, s15, s16
from tests.handouts.pages import squeezed, uncovered, units

MODULES: tuple[ModuleType, ...] = (s00, s01, s02, s03, s04, s05, s06, s07, s08, s09, s10, s11, s12, s13, s14, s15, s16)
PAGES = {stage.id: KIT / "assignments" / stage.handout for stage in load_manifest().stages}
EXAMPLES = [(module.__name__.rpartition(".")[2], example) for module in MODULES for example in module.EXAMPLES]

Example = Callable[[], Iterator[str]]


@pytest.mark.parametrize(("stage", "example"), EXAMPLES, ids=[f"{s}-{e.__name__}" for s, e in EXAMPLES])
def test_page_has_the_recomputed_numbers(stage: str, example: Example) -> None:
    page = PAGES[stage].read_text()
    texts = [squeezed(text) for text in example()]
    assert texts
    for text in texts:
        assert text in squeezed(page), f"recomputed: {text}\nthe page:   {closest(text, page)}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_number_that_is_worked_out_is_recomputed(module: ModuleType) -> None:
    page = PAGES[module.__name__.rpartition(".")[2]].read_text()
    missing = uncovered(page, [text for example in module.EXAMPLES for text in example()])
    assert not missing, "\n".join(["no example has these numbers:", *missing])


def closest(text: str, page: str) -> str:
    """The unit of the page that is most like a text."""
    return max((unit.text for unit in units(page)), key=lambda unit: SequenceMatcher(None, unit, text).ratio())
