"""Writes the bodies of OpenAI's answers: whole, or in chunks as server-sent events."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from grader.serving.openai_requests import ApiError, Call


class Piece(NamedTuple):
    """A token of the answer to the prompt of this number in its call, and the text that became final with it."""

    prompt: int
    text: str
    token: int
    reason: str | None


class Form:
    """OpenAI's bodies for the answers to one call, whole or in chunks."""

    def __init__(self, call: Call, model: str, request_id: str) -> None:
        self.call = call
        kind = "chat.completion" if call.chat else "text_completion"
        if call.chat and call.stream:
            kind += ".chunk"
        self._head = {"id": request_id, "object": kind, "created": int(time.time()), "model": model}

    def body(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {**self._head, "choices": choices, **more}

    def choice(
        self, index: int, text: str, tokens: list[int], reason: str | None, role: str | None = None
    ) -> dict[str, Any]:
        """The answer to the prompt with this index, or what a chunk adds to it."""
        content: dict[str, Any] = {"text": text}
        if self.call.chat:
            message = {"content": text} if role is None else {"role": role, "content": text}
            content = {"delta" if self.call.stream else "message": message}
        ids = {"token_ids": tokens} if self.call.return_token_ids else {}
        return {"index": index, **content, "logprobs": None, "finish_reason": reason, **ids}

    def usage(self, count: int) -> dict[str, int]:
        prompt = sum(map(len, self.call.prompts))
        return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}


async def whole(form: Form, pieces: AsyncIterator[Piece]) -> dict[str, Any]:
    """The body of an answer that isn't streamed."""
    answers: list[list[Piece]] = [[] for _ in form.call.prompts]
    async for piece in pieces:
        answers[piece.prompt].append(piece)
    role = "assistant" if form.call.chat else None
    choices = [
        form.choice(
            index, "".join(piece.text for piece in answer), [piece.token for piece in answer], answer[-1].reason, role
        )
        for index, answer in enumerate(answers)
    ]
    return form.body(choices, usage=form.usage(sum(map(len, answers))))


async def events(form: Form, pieces: AsyncIterator[Piece]) -> AsyncIterator[str]:
    """The events of a streamed answer."""
    usage: dict[str, Any] = {"usage": None} if form.call.include_usage else {}
    count = 0
    try:
        if form.call.chat:
            yield _event(form.body([form.choice(0, "", [], None, "assistant")], **usage))
        async for index, text, token, reason in pieces:
            count += 1
            if text or reason is not None or form.call.return_token_ids:
                yield _event(form.body([form.choice(index, text, [token], reason)], **usage))
        if form.call.include_usage:
            yield _event(form.body([], usage=form.usage(count)))
    except ApiError as error:  # the status has been sent: what is left to tell it is an event
        yield _event(error.body)
    yield "data: [DONE]\n\n"


def _event(body: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"
