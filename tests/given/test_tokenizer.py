"""tokenizer.json is read and used as it says; what cannot be read is named."""

from pathlib import Path

import pytest

from grader import KIT
from grader.given.config import LlamaConfig
from grader.given.tokenizer import Tokenizer, TokenizerError

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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is missing: copy it"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"model": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read as a tokenizer \(.+\): fetch it again"):
        Tokenizer.from_folder(tmp_path)
