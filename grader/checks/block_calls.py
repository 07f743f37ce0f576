"""Drawn calls of a BlockManager, most of which mean something where they stand."""

from collections.abc import Sequence

import hypothesis.strategies as st

SEQUENCES = range(3)
ANY = 9
"""A choice of this number leaves method and sequence as drawn, whether or not the call makes sense there."""

Call = tuple[str, int] | tuple[str, int, int]
"""The method and its arguments; the first is the sequence."""

NO_CALL = ""
"""The simplest choice, so that the smallest failing list is shorter than all that are drawn."""

_METHODS = (NO_CALL, "append", "append", "append", "allocate", "free")
_CHOICES = st.tuples(st.sampled_from(_METHODS), st.integers(0, ANY), st.integers(0, 12))


def _calls(choices: Sequence[tuple[str, int, int]]) -> list[Call]:
    """allocate begins a sequence that has not begun, append and free take one that has."""
    begun: set[int] = set()
    calls: list[Call] = []
    for method, choice, count in choices:
        if method == NO_CALL:
            continue
        fitting = list(SEQUENCES)
        if choice != ANY:
            if not begun:
                method = "allocate"
            elif len(begun) == len(SEQUENCES) and method == "allocate":
                method = "append"
            fitting = sorted(set(SEQUENCES) - begun if method == "allocate" else begun)
        sequence = fitting[choice % len(fitting)]
        if method == "free":
            begun.discard(sequence)
            calls.append((method, sequence))
        elif method == "allocate":
            begun.add(sequence)
            calls.append((method, sequence, count // 2))
        else:
            calls.append((method, sequence, count))
    return calls


CALLS = st.lists(_CHOICES, min_size=8, max_size=25).map(_calls)
"""Lists of up to 25 calls."""
