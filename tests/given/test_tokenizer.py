"""tokenizer.json is read and used as it says; what cannot be read is named."""

import random
from pathlib import Path

import pytest
import tokenizers
from given.config import LlamaConfig
from given.tokenizer import Tokenizer, TokenizerError

from grader import KIT

TINY = KIT / "reference_outputs/tiny/model"


@pytest.mark.parametrize("text", ["", "plain words", "naïve 東京 🙂👩‍🔬", "two\nlines\t "])
def test_text_comes_back(text: str) -> None:
    tokenizer = Tokenizer.from_folder(TINY)
    ids = tokenizer.encode(text)
    assert ids[0] == LlamaConfig.from_folder(TINY).bos_token_id
    assert all(type(token) is int for token in ids)
    assert tokenizer.decode(ids) == text


def test_half_a_character_is_replaced() -> None:
    tokenizer = Tokenizer.from_folder(str(TINY))
    ids = tokenizer.encode("🙂")
    assert len(ids) > 2
    assert tokenizer.decode(ids[:-1]).endswith("\N{REPLACEMENT CHARACTER}")


def test_streamed_text_is_the_whole_text() -> None:
    """Also of tokens that no text has: half characters everywhere."""
    tokenizer = Tokenizer.from_folder(TINY)
    rng = random.Random(0)
    answers = [[rng.randrange(1024) for _ in range(length)] for length in range(100)]
    for tokens in [*answers, tokenizer.encode("naïve 東京 🙂👩‍🔬")]:
        stream = tokenizer.stream()
        assert "".join([*map(stream.push, tokens), stream.finish()]) == tokenizer.decode(tokens)


def test_streamed_text_comes_with_its_last_token() -> None:
    tokenizer = Tokenizer.from_folder(TINY)
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in tokenizer.encode("I 🙂")]
    assert pieces[-1] == "🙂"
    assert "".join(pieces[:-1]) == "I "


def test_streaming_where_characters_are_spelt_in_bytes() -> None:
    """As Llama 2 does; bytes that are no text must not end the stream, and what comes after them is told."""
    words = ["▁", "▁the", "a", "é", "日"]
    vocabulary = {token: number for number, token in enumerate(["?", *(f"<0x{b:02X}>" for b in range(256)), *words])}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], byte_fallback=True, unk_token="?"))
    parts = tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()
    library.decoder = tokenizers.decoders.Sequence(list(parts))
    tokenizer = Tokenizer(library)
    rng = random.Random(0)
    for _ in range(100):
        noise = [rng.randrange(1, 257) for _ in range(8)]
        stream = tokenizer.stream()
        for token in noise:
            stream.push(token)
        text = "".join([*map(stream.push, library.encode("a𝄞日éa").ids), stream.finish()])
        assert text.endswith("日éa")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is missing: copy it"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"model": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read as a tokenizer \(.+\): fetch it again"):
        Tokenizer.from_folder(tmp_path)
