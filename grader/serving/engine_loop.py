"""The one thread that owns an engine: takes requests from other threads, steps while there are any, tells what came.

Knows nothing of HTTP. Needs `add_request`, `step`, `abort` and `stats` of an LLM, and survives what they raise.
"""

import contextlib
import operator
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from given.requests import RequestTooLong, SamplingParams, StepOutput

MAX_IDLE_STEPS = 1000
"""An engine that gives no token in so many steps in a row is stuck."""
MAX_FAILURES = 3
"""An engine whose steps fail so often without a token in between is not well: its device may be lost."""
SHUTTING_DOWN = "the server is shutting down"


class EngineFailed(RuntimeError):
    """The engine's code failed while it had this request; the text says where."""


class EngineGone(RuntimeError):
    """There is no engine any more that could take or go on with this request."""


Event = tuple[str, StepOutput | Exception | None]
"""What came of the request with this id: None when the engine took it and those added with it, a token, or the error
that ended it."""


class Addition(NamedTuple):
    ids: list[str]
    prompts: list[list[int]]
    params: SamplingParams


class EngineLoop:
    """Serves the requests of other threads; these use `add`, `abort`, `stop`, `stats`, `trouble` and `failure`."""

    def __init__(self, llm: Any, explain: Callable[[BaseException], str], warn: Callable[[str], None]) -> None:
        """`explain` puts an error of the engine's code into words, `warn` shows such words to whoever runs it."""
        self.stats: dict[str, int] = {}
        """The engine's own counts after its last step."""
        self.failure: str | None = None
        """Why no request is taken any more."""
        self.trouble: str | None = None
        """Why no request may go well, although they are taken: steps failed, MAX_FAILURES or more in a row."""
        self._llm = llm
        self._explain = explain
        self._warn = warn
        self._inbox: SimpleQueue[Addition | str | None] = SimpleQueue()  # additions, ids to abort, None to stop
        self._live: set[str] = set()
        self._events: list[Event] = []
        self._idle_steps = 0
        self._failures = 0

    def add(self, ids: Sequence[str], prompts: Sequence[list[int]], params: SamplingParams) -> None:
        """Ask for these requests, all or none: the answer is one event with the first id."""
        self._inbox.put(Addition(list(ids), list(prompts), params))

    def abort(self, request_id: str) -> None:
        """Forget a request, which gets no further events; nothing happens where it has ended already."""
        self._inbox.put(request_id)

    def stop(self) -> None:
        """Let `run` end after the current step. May be called by a signal's handler."""
        self.failure = self.failure or SHUTTING_DOWN
        self._inbox.put(None)

    def run(self, deliver: Callable[[list[Event]], None]) -> None:
        """Serve until `stop`, in the thread that made the engine; `deliver` gets what happened, in its order.

        What the engine raises in a step ends all requests that it has, and no others. When it can't let go of a
        request it is asked for nothing more, and every request ends with EngineGone.
        """
        stopping = False
        self._observe()
        while not stopping:
            stopping = self._take_messages()
            if self._live and not stopping:
                self._step()
            self._observe()
            deliver(self._events)
            self._events = []
        deliver([(request_id, EngineGone(str(self.failure))) for request_id in self._live])

    def _take_messages(self) -> bool:
        """Handle all that came, waiting for something where no request runs; whether to stop."""
        wait = not self._live
        while wait or not self._inbox.empty():
            wait = False
            match self._inbox.get():
                case None:
                    return True
                case Addition() as addition:
                    self._events.append((addition.ids[0], self._add(addition)))
                case str(request_id):
                    self._guard(self._abort, request_id)
        return False

    def _add(self, addition: Addition) -> Exception | None:
        if self.failure is not None:
            return EngineGone(self.failure)
        for index, (request_id, prompt) in enumerate(zip(addition.ids, addition.prompts, strict=True)):
            try:
                self._llm.add_request(request_id, prompt, addition.params)
            except (Exception, SystemExit) as error:
                for added in addition.ids[:index]:
                    self._guard(self._abort, added)
                if not isinstance(error, ValueError):
                    return EngineFailed(self._report(error))
                kind = RequestTooLong if isinstance(error, RequestTooLong) else ValueError
                return kind(f"prompt {index}: {error}" if len(addition.ids) > 1 else str(error))
            self._live.add(request_id)
        return None

    def _abort(self, request_id: str) -> None:
        if request_id in self._live:
            self._live.discard(request_id)
            with contextlib.suppress(KeyError):  # UnknownRequest: it had forgotten the request by itself
                self._llm.abort(request_id)

    def _guard(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call what must not fail: without it the engine is in no known state."""
        try:
            call(*arguments)
        except (Exception, SystemExit) as error:
            self.failure = f"the engine failed: {self._report(error)}"
            self._warn("The engine is given up; requests are refused from now on. Ctrl-C ends the server.")
            self._events += [(request_id, EngineGone(self.failure)) for request_id in self._live]
            self._live.clear()

    def _step(self) -> None:
        try:
            outputs = [_checked(output) for output in self._llm.step()]
            self._idle_steps = 0 if outputs else self._idle_steps + 1
            if self._idle_steps == MAX_IDLE_STEPS:
                raise EngineFailed(f"engine/llm.py: step gave no token {MAX_IDLE_STEPS} times in a row.")
        except (Exception, SystemExit) as error:
            self._give_up_step(error)
            return
        if outputs:
            self._failures, self.trouble = 0, None
        for output in outputs:
            if output.request_id in self._live:
                self._events.append((output.request_id, output))
                if output.finish_reason is not None:
                    self._live.discard(output.request_id)

    def _give_up_step(self, error: BaseException) -> None:
        """End all requests: which of them the step failed for isn't known."""
        told = self._report(error)
        self._idle_steps = 0
        self._failures += 1
        for request_id in list(self._live):
            self._events.append((request_id, EngineFailed(told)))
            self._guard(self._abort, request_id)
        if self._failures >= MAX_FAILURES:
            self.trouble = f"the last {self._failures} steps failed: {told}"

    def _observe(self) -> None:
        """Note the engine's counts, which are for show: one that fails to give them serves as well."""
        try:
            self.stats = {str(name): int(count) for name, count in self._llm.stats().items()}
        except (Exception, SystemExit):
            self.stats = {}

    def _report(self, error: BaseException) -> str:
        """Show an error to whoever runs the server; returns its text."""
        told = str(error) if isinstance(error, EngineFailed) else self._explain(error)
        self._warn(told)
        return told


def _checked(output: Any) -> StepOutput:
    """A step's output in the form that `given.requests` gives it. Raises EngineFailed for anything else."""
    try:
        request_id, token, reason = output
        token = operator.index(token)
    except (TypeError, ValueError):
        raise EngineFailed(f"engine/llm.py: step gave {output!r:.80}, no StepOutput.") from None
    if not 0 <= token < 2**31 or reason not in (None, "stop", "length"):
        raise EngineFailed(f"engine/llm.py: step gave {output!r:.80}, which is no token or no finish reason.")
    return StepOutput(request_id, token, reason)
