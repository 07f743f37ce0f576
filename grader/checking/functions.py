"""The functions of checks: how they are recognised, their titles, the generators of what they draw."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import numpy as np


class CheckFunction(Protocol):
    check_id: str

    def __call__(self, *arguments: Any, **fixtures: Any) -> None: ...


def is_check(value: object) -> TypeGuard[CheckFunction]:
    """Whether a value of a module is a function that `check` of api.py has marked."""
    return inspect.isfunction(value) and hasattr(value, "check_id")


def title(function: Callable[..., Any]) -> str:
    """What students read of a check: the first line of its docstring."""
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]


def generator(check_id: str, seed: int) -> np.random.Generator:
    """The generator of a check in a run with this seed; it does not depend on what else runs."""
    stage, _, number = check_id[1:].partition(".")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(stage), int(number))))
