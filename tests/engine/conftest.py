"""Makes the solutions' engine and `given` importable here, and LLM over a fake model: no test here has a GPU."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grader import KIT
from grader.worker import load_package

if "engine" not in sys.modules:
    load_package("engine", KIT / "solutions" / "engine")

from tests.engine import fakes


@pytest.fixture(scope="session")
def llm_class() -> Iterator[Any]:
    """The solutions' LLM, on fakes of pycuda, model and cache."""
    from given import ops

    before = dict(sys.modules)
    patch = pytest.MonkeyPatch()
    for name, contents in fakes.MODULES.items():
        module = ModuleType(name)
        module.__dict__.update(contents)
        patch.setitem(sys.modules, name, module)
    for name, (parent, attribute) in fakes.ATTRIBUTES.items():
        patch.setattr(sys.modules[parent], attribute, sys.modules[name], raising=False)
    patch.setattr(ops, "argmax", fakes.argmax)
    patch.delitem(sys.modules, "engine.llm", raising=False)
    yield importlib.import_module("engine.llm").LLM
    patch.undo()
    for name in sys.modules.keys() - before.keys():
        if name.startswith(("engine.", "pycuda")):
            del sys.modules[name]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write_config(tmp_path_factory.mktemp("model"))
