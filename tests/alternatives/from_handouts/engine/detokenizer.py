"""An alternative solution: only the tokens since the last whole character are kept, and what of them was shown."""

from collections.abc import Callable


class Detokenizer:
    """The text of one answer, piece by piece."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self.decode = decode
        self.pending: list[int] = []
        self.shown = 0

    def push(self, token: int) -> str:
        """What is whole up to here and was not shown."""
        self.pending.append(token)
        text = self.decode(self.pending)
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
        piece = whole[self.shown :]
        self.shown = len(whole)
        if whole == text:
            self.pending, self.shown = [], 0
        return piece

    def finish(self) -> str:
        """What is left, whole or not."""
        return self.decode(self.pending)[self.shown :]
