"""Many clients at once, each with OpenAI's own client: every one gets exactly its own answer."""

import asyncio
from typing import Any

import numpy as np
import openai
from given.tokenizer import Tokenizer

from grader import KIT
from grader.oracle.references import load_oracle
from grader.oracle.scripted import ScriptedModel
from grader.oracle.streams import expect_stream
from tests.serving.conftest import words
from tests.serving.processes import SECONDS, Running

CLIENTS = 16


async def read_stream(client: openai.AsyncOpenAI, **arguments: Any) -> tuple[str, list[int], str, Any]:
    """(text, token ids, finish reason, usage) of a streamed completion."""
    text, tokens, reason, usage = "", [], "", None
    stream = await client.completions.create(
        **arguments, stream=True, stream_options={"include_usage": True}, extra_body={"return_token_ids": True}
    )
    async for chunk in stream:
        usage = chunk.usage
        for choice in chunk.choices:
            assert not reason, "a chunk after the last"
            text += choice.text
            tokens += choice.model_extra["token_ids"]
            reason = choice.finish_reason or reason
    return text, tokens, reason, usage


def all_at_once(server: Running, requests: list[dict[str, Any]]) -> list[tuple[str, list[int], str, Any]]:
    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as c:
            return await asyncio.gather(*(read_stream(c, model=server.model, **request) for request in requests))

    return asyncio.run(ask())


def test_scripted_streams(scripted: Running, scripted_folder: ScriptedModel) -> None:
    """Twice as many clients as run at once; answers that end by themselves and by max_tokens."""
    rng = np.random.default_rng(0)
    lengths = rng.permutation(np.arange(8, 8 + 2 * CLIENTS, 2)).tolist()
    prompts = [
        scripted_folder.prompt_for(rng, length, 3 + length) if length % 4 else scripted_folder.prompt(rng, 3 + length)
        for length in lengths
    ]
    before = scripted.health()["steps"]
    requests = [
        {"prompt": prompt, "max_tokens": length, "temperature": 0}
        for prompt, length in zip(prompts, lengths, strict=True)
    ]
    answers = all_at_once(scripted, requests)
    for prompt, length, (text, tokens, reason, usage) in zip(prompts, lengths, answers, strict=True):
        wanted = scripted_folder.stream(prompt, length)
        assert (tokens, reason) == wanted
        assert text == words(tokens[:-1] if reason == "stop" else tokens)
        assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), len(tokens))
        assert usage.total_tokens == len(prompt) + len(tokens)
    scripted.wait_until_idle()
    total = sum(len(tokens) for _, tokens, _, _ in answers)
    assert scripted.health()["steps"] - before < total / 2  # they shared steps


def test_tiny_streams_of_text(tiny: Running) -> None:
    folder = KIT / "reference_outputs" / "tiny" / "model"
    tokenizer = Tokenizer.from_folder(folder)
    texts = ["ROMEO:", "What light", "My lord,", "O, ", "First Citizen:\nBefore", "Good ", "the ", "Enter KING"] * 2
    texts = [f"{text}{number} é" for number, text in enumerate(texts)]
    answers = all_at_once(
        tiny, [{"prompt": text, "max_tokens": 12 + number, "temperature": 0} for number, text in enumerate(texts)]
    )
    oracle = load_oracle(folder)
    for text, (answer, tokens, reason, usage) in zip(texts, answers, strict=True):
        prompt = tokenizer.encode(text)
        expect_stream(oracle, prompt, tokens)
        assert answer == tokenizer.decode(tokens[:-1] if reason == "stop" else tokens)
        assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), len(tokens))
