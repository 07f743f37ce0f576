"""The solutions' engine served on the scripted and the tiny model: one server of each for all tests."""

from collections.abc import Iterator

import numpy as np
import pytest
import tokenizers

from grader import KIT
from grader.oracle.scripted import ScriptedModel, scripted_model
from tests.serving.processes import Running, running

CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


@pytest.fixture(scope="session")
def scripted_folder(tmp_path_factory: pytest.TempPathFactory) -> ScriptedModel:
    """A scripted model that can be talked to: the text of token 17 is "w17"."""
    model = scripted_model(np.random.default_rng(5), tmp_path_factory.mktemp("models"))
    words = {word(token): token for token in range(model.config.vocab_size)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, word(0)))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(model.folder / "tokenizer.json"))
    (model.folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return model


def word(token: int) -> str:
    return f"w{token}"


def words(tokens: list[int]) -> str:
    return " ".join(map(word, tokens))


@pytest.fixture(scope="session")
def scripted(scripted_folder: ScriptedModel) -> Iterator[Running]:
    with running(KIT / "solutions", str(scripted_folder.folder), "--max-num-seqs", "8", "--queue", "12") as server:
        yield server


@pytest.fixture(scope="session")
def tiny() -> Iterator[Running]:
    with running(KIT / "solutions", "tiny", "--max-num-seqs", "16") as server:
        yield server
