"""Turns a stream of tokens into a stream of text, never showing half a character."""

from collections.abc import Callable

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What `decode` returns for bytes that are no character, or not yet a whole one."""


class Detokenizer:
    """The text of one answer, piece by piece; all pieces together are decode(all tokens)."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        """`decode` returns the text of any list of tokens, as Tokenizer.decode does."""
        # s10.4: no tokens yet, no text shown
        self.decode = decode
        self.tokens: list[int] = []
        self.last_piece = 0  # this many of these have given their text; the next one's spacing may depend on them

    def push(self, token: int) -> str:
        """The text that is new and final with this token; empty while what is new ends in U+FFFD.

        The cost does not depend on how much text there is already.
        """
        # s10.4: decode the last few tokens and give what is new and whole
        self.tokens.append(token)
        piece = self._pending()
        if not piece or piece.endswith(REPLACEMENT):
            return ""
        del self.tokens[: self.last_piece]
        self.last_piece = len(self.tokens)
        return piece

    def finish(self) -> str:
        """The rest of the text, when no token follows: where it ends within a character, U+FFFD stands for that."""
        # s10.4: the text of the tokens that push kept back
        return self._pending()

    def _pending(self) -> str:
        """The text of the tokens after the last piece, in the place where they stand."""
        return self.decode(self.tokens).removeprefix(self.decode(self.tokens[: self.last_piece]))
