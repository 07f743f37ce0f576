"""Text to token ids and back, by the tokenizer.json of a model's folder."""

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers.decoders import DecodeStream


class TokenizerError(ValueError):
    """A model's folder has no tokenizer.json, or one that cannot be used."""


class Tokenizer:
    """The tokenizer of one model, as its tokenizer.json describes it."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def from_folder(cls, model_dir: str | Path) -> "Tokenizer":
        """Read `model_dir`/tokenizer.json; raises TokenizerError, which names the file and what to do."""
        file = Path(model_dir) / "tokenizer.json"
        if not file.is_file():
            raise TokenizerError(f"{file} is missing: copy it from where the model comes from, or use token ids")
        try:
            return cls(tokenizers.Tokenizer.from_file(str(file)))
        except Exception as error:  # the library raises nothing narrower
            cure = "fetch it again from where the model comes from"
            raise TokenizerError(f"{file} cannot be read as a tokenizer ({error}): {cure}") from None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`, with those that tokenizer.json puts around every text (a begin-of-sequence id, say)."""
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens; special tokens have none, and bytes that form no character become U+FFFD."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def stream(self) -> "TextStream":
        """For the text of an answer that comes token by token."""
        return TextStream(self._tokenizer)


class TextStream:
    """The text of tokens as they come, by the library's own means; all pieces together are the text of all tokens.

    Where a tokenizer spells unknown characters in bytes, bytes that form none can change text that was final.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._length = 0

    def push(self, token: int) -> str:
        """The text that is final with this token."""
        self._tokens.append(token)
        try:
            piece = self._stream.step(self._tokenizer, token) or ""
        except Exception:  # the library raises nothing narrower, and gives up where bytes are no text
            piece = self.finish()
            self._stream = DecodeStream(self._tokens, skip_special_tokens=True)
        self._length += len(piece)
        return piece

    def finish(self) -> str:
        """What was kept back because it might have become another character."""
        return str(self._tokenizer.decode(self._tokens, skip_special_tokens=True))[self._length :]
