"""An HTTP server with OpenAI's interface over an engine, for many clients at once.

Runs in the thread of its event loop; the engine runs in another one (engine_loop.py). Each call becomes requests of
the engine, whose tokens come back through a queue of the call; a client that goes away takes its requests with it.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from given.requests import RequestTooLong
from given.tokenizer import Tokenizer
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from grader.serving.engine_loop import EngineGone, EngineLoop, Event
from grader.serving.openai_answers import Form, Piece, events, whole
from grader.serving.openai_requests import ApiError, Call, ServedModel, read_chat, read_completion

MAX_BODY = 8 << 20
"""Bytes of a request's body."""
RETRY_SECONDS = 1
GONE = 499
"""The status for a client that is no longer there to read it."""

T = TypeVar("T")


class Server:
    """`app` is the ASGI application; `deliver` is for the engine's thread."""

    def __init__(self, engine: EngineLoop, model: ServedModel, capacity: int) -> None:
        """`capacity`: requests that the engine may have at once, running and waiting; more are refused with 429."""
        self._engine = engine
        self._model = model
        self._capacity = capacity
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[str, asyncio.Queue[Event]] = {}
        self._numbers = itertools.count()
        self._created = int(time.time())
        self.app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._one_model),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ],
            exception_handlers={ApiError: _error, HTTPException: _error, ClientDisconnect: _gone, Exception: _error},
            lifespan=self._lifespan,
        )

    def deliver(self, events: list[Event]) -> None:
        """Give the engine's events to the calls they are for; from any thread."""
        if events and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and every call with it
                self._loop.call_soon_threadsafe(self._dispatch, events)

    def _dispatch(self, events: list[Event]) -> None:
        for event in events:
            if event[0] in self._queues:
                self._queues[event[0]].put_nowait(event)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        yield

    async def _health(self, request: Request) -> Response:
        reason = self._engine.failure or self._engine.trouble
        state = {"status": "ok"} if reason is None else {"status": "failed", "reason": reason}
        return JSONResponse({**state, **self._engine.stats}, 200 if reason is None else 503)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _one_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self._model.name:
            raise ApiError(f"the model {name[:200]!r} does not exist", "model", status=404, code="model_not_found")
        return JSONResponse(self._card())

    def _card(self) -> dict[str, Any]:
        return {"id": self._model.name, "object": "model", "created": self._created, "owned_by": "pagedlab"}

    async def _completions(self, request: Request) -> Response:
        return await self._answer(request, await run_in_threadpool(read_completion, await _body(request), self._model))

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, await run_in_threadpool(read_chat, await _body(request), self._model))

    async def _answer(self, request: Request, call: Call) -> Response:
        if len(call.prompts) > self._capacity:
            raise ApiError(f"{len(call.prompts)} prompts in one request; at most {self._capacity} are taken", "prompt")
        if len(self._queues) + len(call.prompts) > self._capacity:
            message = f"{len(self._queues)} requests run or wait, which is all that are taken: try again later"
            raise ApiError(message, status=429, code="rate_limit_exceeded", kind="rate_limit_error")
        ongoing = Ongoing(self._engine, self._queues, f"{self._created}-{next(self._numbers)}", call)
        form = Form(call, self._model.name, ongoing.id)
        try:
            await _unless_gone(request, ongoing.admission())
            if call.stream:
                return EventStream(form, ongoing, self._model.tokenizer)
            body = await _unless_gone(request, whole(form, ongoing.pieces(self._model.tokenizer)))
        except BaseException:
            ongoing.close()
            raise
        return JSONResponse(body)


class Ongoing:
    """The requests that the engine has for one call, until they end or `close` gives them up."""

    def __init__(self, engine: EngineLoop, queues: dict[str, asyncio.Queue[Event]], name: str, call: Call) -> None:
        self.id = f"{'chatcmpl' if call.chat else 'cmpl'}-{name}"
        self._engine = engine
        self._queues = queues
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._param = "messages" if call.chat else "prompt"
        self._indices = {f"{self.id}-{index}": index for index in range(len(call.prompts))}
        queues.update(dict.fromkeys(self._indices, self._queue))
        engine.add(list(self._indices), call.prompts, call.params)

    async def admission(self) -> None:
        """Wait until the engine took the requests. Raises ApiError where it did not."""
        await self._next()

    async def pieces(self, tokenizer: Tokenizer) -> AsyncIterator[Piece]:
        """What the engine gives, after `admission`, to the end of all requests. Raises ApiError."""
        streams = {request_id: tokenizer.stream() for request_id in self._indices}
        while streams:
            request_id, token, reason = await self._next()
            text = streams[request_id].push(token) if reason != "stop" else ""  # the token that ends it is no text
            if reason is not None:
                text += streams.pop(request_id).finish()
                del self._queues[request_id]
            yield Piece(self._indices[request_id], text, token, reason)

    def close(self) -> None:
        """Take back the requests that have not ended."""
        for request_id in self._indices.keys() & self._queues.keys():
            del self._queues[request_id]
            self._engine.abort(request_id)

    async def _next(self) -> Any:
        match (await self._queue.get())[1]:
            case RequestTooLong() as error:
                raise ApiError(str(error), self._param, code="context_length_exceeded")
            case ValueError() as error:
                raise ApiError(str(error), self._param)
            case EngineGone() as error:
                raise ApiError(str(error), status=503)
            case Exception() as error:
                raise ApiError(str(error), status=500)
            case output:
                return output


class EventStream(StreamingResponse):
    """An answer as server-sent events; takes its requests back when the client goes."""

    def __init__(self, form: Form, ongoing: Ongoing, tokenizer: Tokenizer) -> None:
        super().__init__(events(form, ongoing.pieces(tokenizer)), media_type="text/event-stream")
        self._ongoing = ongoing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ongoing.close()


async def _body(request: Request) -> Any:
    """The request's body, which is JSON. Raises ApiError, ClientDisconnect."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise ApiError(f"the body is larger than {MAX_BODY >> 20} MiB", status=413)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the body cannot be read as JSON: {error}") from None


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is given up with ClientDisconnect when the client goes first."""
    tasks = asyncio.create_task(work), asyncio.create_task(_wait_until_gone(request))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=GONE)


async def _error(request: Request, error: Exception) -> Response:
    """The answer to what the code above refuses, and to what Starlette does: an unknown path or method."""
    if isinstance(error, HTTPException):
        message = f"{error.detail}: there is no {request.method} {request.url.path} here"
        error = ApiError(message, status=error.status_code)
    elif not isinstance(error, ApiError):
        error = ApiError("the server itself failed, which is no fault of the engine", status=500)
    headers = {"Retry-After": str(RETRY_SECONDS)} if error.status == 429 else None
    return JSONResponse(error.body, error.status, headers)
