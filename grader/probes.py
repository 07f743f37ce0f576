"""Objects that a check puts into the process of the submission's Python, to see there how they are used."""

from collections.abc import Sequence

from given.tokenizer import Tokenizer


class CountedDecode:
    """The `decode` of a model's tokenizer, which remembers how much it was asked for at once."""

    def __init__(self, model_dir: str) -> None:
        self._tokenizer = Tokenizer.from_folder(model_dir)
        self._longest = 0

    def __call__(self, ids: Sequence[int]) -> str:
        self._longest = max(self._longest, len(ids))
        return self._tokenizer.decode(ids)

    def longest(self) -> int:
        """The largest number of tokens in one call."""
        return self._longest
