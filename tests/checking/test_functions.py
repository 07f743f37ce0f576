"""Checks are recognised by their mark, and draw the same in every run of a seed."""

import numpy as np
import pytest

from grader.checking.api import check
from grader.checking.functions import generator, is_check, title


@check("s03.1")
def marked() -> None:
    """
    Returns nothing.
    Never.
    """


def test_a_check_is_a_marked_function() -> None:
    class Marked:
        check_id = "s03.1"

    assert [is_check(value) for value in (marked, Marked(), title, None)] == [True, False, False, False]


def test_the_title_is_the_first_line() -> None:
    assert title(marked) == "Returns nothing."
    with pytest.raises(ValueError, match="has no docstring"):
        check("s03.2")(lambda: None)


def test_the_generator_follows_from_seed_and_check_alone() -> None:
    drawn = [generator(name, seed).integers(2**40) for name, seed in (("s03.1", 7), ("s03.1", 7), ("s03.10", 7))]
    wanted = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(3, 1))).integers(2**40)
    assert drawn[0] == drawn[1] == wanted != drawn[2]
