"""Reads the bodies of OpenAI's /v1/completions and /v1/chat/completions: what is asked of the engine, or an error.

What isn't supported is refused by name, never ignored; a few fields that ask for nothing are let through.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from given.config import LlamaConfig
from given.requests import SamplingParams
from given.tokenizer import Tokenizer

from grader.serving.chat_template import ChatTemplate, ChatTemplateError

SAMPLING = ("temperature", "top_p", "top_k", "seed", "ignore_eos", "max_tokens")
COMMON = {"model", "stream", "stream_options", "return_token_ids", *SAMPLING}
WITHOUT_EFFECT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "stop": ([],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Fields that are not supported, with the values that ask for nothing."""


class ApiError(Exception):
    """A request is answered with an error, in the form that OpenAI's clients read."""

    def __init__(
        self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None, kind: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = kind or ("server_error" if status >= 500 else "invalid_request_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class ServedModel:
    """The model that is served, by the name that clients give it."""

    name: str
    config: LlamaConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    """None where the model is no chat model."""


@dataclass(frozen=True)
class Call:
    """What one HTTP request asks of the engine."""

    chat: bool
    prompts: list[list[int]]
    params: SamplingParams
    stream: bool
    include_usage: bool
    return_token_ids: bool
    """Give the ids of the tokens beside their text, as vLLM does."""


def read_completion(body: Any, model: ServedModel) -> Call:
    """A call of /v1/completions. Raises ApiError."""
    body = _fields(body, model, {"prompt"})
    prompts = _prompts(body.get("prompt"), model.tokenizer)
    return _call(body, False, prompts, _sampling(body, model, 16))


def read_chat(body: Any, model: ServedModel) -> Call:
    """A call of /v1/chat/completions. Raises ApiError."""
    body = _fields(body, model, {"messages", "max_completion_tokens"})
    if "max_completion_tokens" in body:
        body["max_tokens"] = body["max_completion_tokens"]
    if model.template is None:
        raise ApiError(f"{model.name} has no chat template, so it is no chat model: use /v1/completions", "model")
    try:
        prompt = model.template.encode(_messages(body.get("messages")))
    except ChatTemplateError as error:
        raise ApiError(str(error), "messages") from None
    left = max(1, model.config.max_position_embeddings - len(prompt))
    return _call(body, True, [prompt], _sampling(body, model, left))


def _fields(body: Any, model: ServedModel, own: set[str]) -> dict[str, Any]:
    """The body's fields that are not null, none of them unknown or unsupported, and for this model."""
    if not isinstance(body, dict):
        raise ApiError(f"the body must be a JSON object, not a {_kind(body)}")
    body = {name: value for name, value in body.items() if value is not None}
    for name, value in body.items():
        if name in NEUTRAL and not any(value == other and type(value) is type(other) for other in NEUTRAL[name]):
            raise ApiError(f"{name} is not supported here: leave it out", name, code="unsupported_parameter")
        if name not in COMMON | own | WITHOUT_EFFECT | NEUTRAL.keys():
            raise ApiError(f"unknown parameter {name[:80]!r}", name[:80], code="unknown_parameter")
    asked = _typed(body, "model", str)
    if asked is None:
        raise ApiError(f"model is missing: the one served here is {model.name}", "model")
    if asked != model.name:
        message = f"the model {asked[:200]!r} does not exist; the one served here is {model.name!r}"
        raise ApiError(message, "model", status=404, code="model_not_found")
    return body


def _call(body: Mapping[str, Any], chat: bool, prompts: list[list[int]], params: SamplingParams) -> Call:
    stream = bool(_typed(body, "stream", bool))
    options = _typed(body, "stream_options", dict) or {}
    if options and not stream:
        raise ApiError("stream_options need stream to be true", "stream_options")
    if unknown := options.keys() - {"include_usage", "include_obfuscation"}:
        raise ApiError(f"unknown field {min(unknown)[:80]!r} in stream_options", "stream_options")
    include_usage = bool(_typed(options, "include_usage", bool))
    return Call(chat, prompts, params, stream, include_usage, bool(_typed(body, "return_token_ids", bool)))


def _sampling(body: Mapping[str, Any], model: ServedModel, max_tokens: int) -> SamplingParams:
    """What the body says of sampling; numbers beyond any use are cut to ones that change nothing."""
    given = {name: body[name] for name in SAMPLING if name in body}
    _typed(given, "ignore_eos", bool)
    for name, value in given.items():
        try:
            SamplingParams(**{name: value})
            if name in ("temperature", "top_p"):
                given[name] = float(value)
        except ValueError as error:
            raise ApiError(str(error), name) from None
        except OverflowError:
            raise ApiError(f"{name} is too large", name) from None
    if given.setdefault("max_tokens", max_tokens) == 0:
        raise ApiError("max_tokens must be at least 1", "max_tokens")
    given["max_tokens"] = min(given["max_tokens"], model.config.max_position_embeddings)
    given["top_k"] = min(given.get("top_k", 0), model.config.vocab_size)
    return SamplingParams(**given)


def _prompts(prompt: Any, tokenizer: Tokenizer) -> list[list[int]]:
    """The token ids of each prompt: a text, a list of token ids, or a list of these."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return [_prompt(one, tokenizer) for one in prompt]
    return [_prompt(prompt, tokenizer)]


def _prompt(prompt: Any, tokenizer: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(_text(prompt, "prompt"))
    if not isinstance(prompt, list) or not all(isinstance(token, int) for token in prompt):
        raise ApiError("prompt must be a text, a list of token ids, or a list of these", "prompt")
    if any(isinstance(token, bool) for token in prompt):
        raise ApiError("prompt must be made of token ids, not of true and false", "prompt")
    return prompt


def _messages(messages: Any) -> list[dict[str, str]]:
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ApiError("messages must be a list of objects with a role and a content", "messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Mapping[str, Any], name: str) -> dict[str, str]:
    """A message as the template takes it: a content in parts becomes one text."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise ApiError(f"{name}: only parts of type text are supported", f"{name}.content")
        content = [part.get("text") for part in content]
        content = "".join(content) if all(isinstance(text, str) for text in content) else None
    if not isinstance(role, str) or not isinstance(content, str):
        raise ApiError(f"{name} must have a role and a content, both texts", name)
    return {"role": _text(role, name), "content": _text(content, f"{name}.content")}


def _text(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ApiError(f"{name} has half of a surrogate pair in it, which is no text", name) from None
    return text


def _typed(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    """The field, None where it is missing. Raises ApiError for a value of another kind."""
    value = fields.get(name)
    if value is not None and not isinstance(value, kind):
        wanted = {str: "a text", bool: "true or false", dict: "an object"}[kind]
        raise ApiError(f"{name} must be {wanted}, not a {_kind(value)}", name)
    return value


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "truth value", type(None): "null"}
    return names.get(type(value), "number")
