"""Turns a stream of tokens into a stream of text, never showing half a character."""

from collections.abc import Callable


class Detokenizer:
    """The text of one answer, piece by piece; all pieces together are decode(all tokens)."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        """`decode` returns the text of any list of tokens, as Tokenizer.decode does."""
        # TODO s10.4: no tokens yet, no text shown
        raise NotImplementedError("s10.4")

    def push(self, token: int) -> str:
        """The text that is new and final with this token; empty while what is new ends in U+FFFD.

        The cost does not depend on how much text there is already.
        """
        # TODO s10.4: decode the last few tokens and give what is new and whole
        raise NotImplementedError("s10.4")

    def finish(self) -> str:
        """The rest of the text, when no token follows: where it ends within a character, U+FFFD stands for that."""
        # TODO s10.4: the text of the tokens that push kept back
        raise NotImplementedError("s10.4")
