"""The form of answers and of refusals, as OpenAI's client reads them; what is answered is known from the model."""

import json
from typing import Any

import numpy as np
import openai
import pytest

from grader.oracle.scripted import ScriptedModel
from tests.serving.conftest import word, words
from tests.serving.processes import Running

RNG = np.random.default_rng(1)


def test_models(scripted: Running) -> None:
    assert [model.id for model in scripted.client.models.list()] == [scripted.model]
    assert scripted.client.models.retrieve(scripted.model).owned_by == "pagedlab"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        scripted.client.models.retrieve("gpt-5")


def test_completion_of_text_and_of_tokens(scripted: Running, scripted_folder: ScriptedModel) -> None:
    """Without max_tokens it is 16, and the usual temperature 1 draws what is certain."""
    prompt = scripted_folder.prompt_for(RNG, 30, 4)
    for asked in (prompt, words(prompt)):
        answer = scripted.client.completions.create(model=scripted.model, prompt=asked)
        assert answer.object == "text_completion"
        assert [(choice.text, choice.finish_reason) for choice in answer.choices] == [
            (words(scripted_folder.continuation(prompt[-1], 16)), "length")
        ]
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 16)


def test_several_prompts(scripted: Running, scripted_folder: ScriptedModel) -> None:
    prompts = [scripted_folder.prompt_for(RNG, steps, steps) for steps in (9, 2, 30)]
    wanted = [scripted_folder.stream(prompt, 10) for prompt in prompts]
    for asked in (prompts, [words(prompt) for prompt in prompts]):
        answer = scripted.client.completions.create(
            model=scripted.model, prompt=asked, max_tokens=10, extra_body={"return_token_ids": True}
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        told = [((choice.model_extra or {})["token_ids"], choice.finish_reason) for choice in answer.choices]
        assert told == wanted
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (41, 21)


def test_chat(scripted: Running, scripted_folder: ScriptedModel) -> None:
    """Without max_tokens an answer goes on to its end, or to the end of the context."""
    prompt = scripted_folder.prompt_for(RNG, 40, 5)
    parts: Any = [{"type": "text", "text": words(prompt[2:4])}, {"type": "text", "text": f" {word(prompt[4])}"}]
    messages: Any = [{"role": "system", "content": words(prompt[:2])}, {"role": "user", "content": parts}]
    answer = scripted.client.chat.completions.create(model=scripted.model, messages=messages)
    choice = answer.choices[0]
    assert answer.object == "chat.completion"
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert choice.message.content == words(scripted_folder.continuation(prompt[-1], 39))
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 40)

    filled = scripted.client.chat.completions.create(
        model=scripted.model,
        messages=[{"role": "user", "content": words(scripted_folder.prompt(RNG, 500))}],
        extra_body={"ignore_eos": True},
    )
    assert filled.choices[0].finish_reason == "length"
    assert filled.usage is not None
    assert filled.usage.total_tokens == 512


def test_chat_streamed(scripted: Running, scripted_folder: ScriptedModel) -> None:
    prompt = scripted_folder.prompt_for(RNG, 40, 5)
    stream = scripted.client.chat.completions.create(
        model=scripted.model,
        messages=[{"role": "user", "content": words(prompt)}],
        max_completion_tokens=7,
        stream=True,
    )
    chunks = [chunk.choices[0] for chunk in stream]
    assert chunks[0].delta.role == "assistant"
    assert "".join(chunk.delta.content or "" for chunk in chunks) == words(scripted_folder.continuation(prompt[-1], 7))
    assert len(chunks) == 8
    assert [chunk.finish_reason for chunk in chunks] == [None] * 7 + ["length"]


def test_events_end_with_done(scripted: Running) -> None:
    body = {"model": scripted.model, "prompt": [1, 2], "max_tokens": 2, "stream": True}
    answer = scripted.http.post("/v1/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert all(event.startswith('data: {"id": "cmpl-') for event in events[:-2])
    assert events[-2:] == ["data: [DONE]", ""]


COMPLETION = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "w1 w2"}]


@pytest.mark.parametrize(
    ("path", "fields", "status", "param", "wanted"),
    [
        (COMPLETION, {"model": None}, 400, "model", "model is missing"),
        (COMPLETION, {"model": "gpt-5"}, 404, "model", "does not exist"),
        (COMPLETION, {"model": 5}, 400, "model", "must be a text"),
        (COMPLETION, {"prompt": None}, 400, "prompt", "prompt must be"),
        (COMPLETION, {"prompt": []}, 400, "prompt", "the prompt is empty"),
        (COMPLETION, {"prompt": ""}, 400, "prompt", "the prompt is empty"),
        (COMPLETION, {"prompt": [[1], []]}, 400, "prompt", "prompt 1: the prompt is empty"),
        (COMPLETION, {"prompt": [1, "w2"]}, 400, "prompt", "prompt must be"),
        (COMPLETION, {"prompt": [[1], [2.5]]}, 400, "prompt", "prompt must be"),
        (COMPLETION, {"prompt": [True]}, 400, "prompt", "true and false"),
        (COMPLETION, {"prompt": [1024]}, 400, "prompt", "outside 0 … 1023"),
        (COMPLETION, {"prompt": [-1]}, 400, "prompt", "outside 0 … 1023"),
        (COMPLETION, {"prompt": [10**30]}, 400, "prompt", "outside 0 … 1023"),
        (COMPLETION, {"prompt": "\ud800"}, 400, "prompt", "surrogate"),
        (COMPLETION, {"prompt": [1] * 512}, 400, "prompt", "512"),
        (COMPLETION, {"prompt": [[1]] * 21}, 400, "prompt", "at most 20"),
        (COMPLETION, {"max_tokens": 0}, 400, "max_tokens", "at least 1"),
        (COMPLETION, {"max_tokens": -1}, 400, "max_tokens", "whole number"),
        (COMPLETION, {"max_tokens": "7"}, 400, "max_tokens", "whole number"),
        (COMPLETION, {"temperature": float("nan")}, 400, "temperature", "got nan"),
        (COMPLETION, {"temperature": float("inf")}, 400, "temperature", "got inf"),
        (COMPLETION, {"temperature": 10**400}, 400, "temperature", "too large"),
        (COMPLETION, {"temperature": "hot"}, 400, "temperature", "must be a number"),
        (COMPLETION, {"top_p": 0}, 400, "top_p", "above 0"),
        (COMPLETION, {"top_k": -3}, 400, "top_k", "whole number"),
        (COMPLETION, {"seed": 1.5}, 400, "seed", "whole number"),
        (COMPLETION, {"ignore_eos": 1}, 400, "ignore_eos", "true or false"),
        (COMPLETION, {"stream": "yes"}, 400, "stream", "true or false"),
        (COMPLETION, {"stream_options": {"include_usage": True}}, 400, "stream_options", "need stream"),
        (COMPLETION, {"stream": True, "stream_options": {"usage": 1}}, 400, "stream_options", "unknown field"),
        (COMPLETION, {"n": 2}, 400, "n", "not supported"),
        (COMPLETION, {"echo": True}, 400, "echo", "not supported"),
        (COMPLETION, {"logprobs": 0}, 400, "logprobs", "not supported"),
        (COMPLETION, {"presence_penalty": 0.5}, 400, "presence_penalty", "not supported"),
        (COMPLETION, {"tempreature": 0}, 400, "tempreature", "unknown parameter"),
        (CHAT, {"messages": None}, 400, "messages", "must be a list"),
        (CHAT, {"messages": []}, 400, "messages", "at least one message"),
        (CHAT, {"messages": ["hi"]}, 400, "messages", "list of objects"),
        (CHAT, {"messages": [{"role": "user"}]}, 400, "messages[0]", "role and a content"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "messages[0].content",
            "text",
        ),
        (CHAT, {"messages": [{"role": "user", "content": "w1 " * 512}]}, 400, "messages", "512"),
        (CHAT, {"max_completion_tokens": 0}, 400, "max_tokens", "at least 1"),
        (CHAT, {"tools": [{"type": "function"}]}, 400, "tools", "not supported"),
    ],
)
def test_refused(scripted: Running, path: str, fields: dict[str, Any], status: int, param: str, wanted: str) -> None:
    body = {"model": scripted.model, **({"prompt": [1]} if path == COMPLETION else {"messages": HELLO}), **fields}
    answer = scripted.http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (status, param, "invalid_request_error"), error
    assert wanted in error["message"]
    assert (error["code"] == "context_length_exceeded") == ("512" in wanted)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"[]", b"null", b'"x"'])
def test_a_body_that_is_no_object(scripted: Running, content: bytes) -> None:
    answer = scripted.http.post("/v1/completions", content=content)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_other_refusals(scripted: Running) -> None:
    for method, path, status in (("GET", "/v1/completions", 405), ("POST", "/v1/embeddings", 404), ("GET", "/", 404)):
        answer = scripted.http.request(method, path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, "invalid_request_error")
    assert scripted.http.post("/v1/completions", content=b"x" * (9 << 20)).status_code == 413


def test_a_model_without_a_chat_template(tiny: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        tiny.client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}])


def test_a_refused_request_takes_nothing(scripted: Running) -> None:
    """Of several prompts the last is refused: the others end with it."""
    with pytest.raises(openai.BadRequestError):
        scripted.client.completions.create(model=scripted.model, prompt=[[1], [2], [5000]], stream=True)
    scripted.wait_until_idle()
