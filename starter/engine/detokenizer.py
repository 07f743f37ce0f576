"""Turns a stream of tokens into a stream of text, never showing half a character."""

from collections.abc import Callable

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What `decode` gives for bytes that are no character, or not yet a whole one."""


class Detokenizer:
    """The text of one answer, piece by piece; all pieces together are decode(all tokens)."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        """`decode` gives the text of any list of tokens, as Tokenizer.decode does."""
        raise NotImplementedError("s10.4")  # TODO s10.4: no tokens yet, no text shown

    def push(self, token: int) -> str:
        """The text that is new and final with this token; empty while what is new ends in U+FFFD.

        The cost does not depend on how much text there is already.
        """
        raise NotImplementedError("s10.4")  # TODO s10.4: decode the last few tokens and give what is new and whole

    def finish(self) -> str:
        """The rest of the text, when no token follows: where it ends within a character, U+FFFD stands for that."""
        raise NotImplementedError("s10.4")  # TODO s10.4: the text of the tokens that push kept back
