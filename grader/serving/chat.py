"""`python -m grader generate` and `chat`: a submission's engine answers, its text streamed as it comes."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from given.requests import SamplingParams
from given.tokenizer import Tokenizer

from grader import UsageError
from grader.commands import Subparsers
from grader.model import find_model
from grader.serving.engine import Engine, EngineError, add_engine_options
from grader.serving.engine_loop import MAX_IDLE_STEPS
from grader.serving.interrupts import interruptible

if TYPE_CHECKING:
    from grader.serving.chat_template import ChatTemplate

REQUEST_ID = "chat"

Message = dict[str, str]


def add_generate(commands: Subparsers) -> None:
    parser = commands.add_parser("generate", help="let an engine answer a prompt")
    parser.set_defaults(run=run_generate)
    parser.add_argument("prompt")
    _add_options(parser)


def add_chat(commands: Subparsers) -> None:
    parser = commands.add_parser("chat", help="talk with an engine")
    parser.set_defaults(run=run_chat)
    _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_engine_options(parser)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token (0)")
    parser.add_argument("--max-tokens", type=int, default=256, help="of an answer, at most (256)")


def run_generate(options: argparse.Namespace) -> int:
    """Answer one prompt: as a chat's question where the model has a chat template, else as a text to complete.

    Raises what ChatSession raises, and EngineError.
    """
    if not options.prompt:
        raise UsageError('there is no prompt: write PROMPT="What is the capital of France?", for example.')
    session = ChatSession(options)
    session.say(session.prompt([{"role": "user", "content": options.prompt}]))
    return 0


def run_chat(options: argparse.Namespace) -> int:
    """A conversation: reads questions until the end of the input, and answers each with all that was said before.

    Raises what ChatSession raises, and EngineError.
    """
    session = ChatSession(options)
    if session.template is None:
        raise UsageError(f"{options.model} has no chat template, so it is no chat model: use make generate.")
    print("Ask something. Ctrl-C ends an answer, Ctrl-D the chat.", file=sys.stderr)
    messages: list[Message] = []
    while (question := _read_question()) is not None:
        if question.strip():
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": session.say(session.prompt(messages))})
    return 0


def _read_question() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        print()
        return None


class ChatSession:
    """An engine with a model, asked one thing at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Start the engine. Raises UsageError, MalformedSubmission, NothingToGradeOn, EngineError."""
        folder = find_model(options.model)
        engine = Engine(Path(options.submission).expanduser(), options.device)
        self.engine = engine
        try:
            self.template = _chat_template(folder)
            self.tokenizer = Tokenizer.from_folder(folder)
            self.params = SamplingParams(temperature=options.temperature, max_tokens=options.max_tokens)
        except ValueError as error:  # also TokenizerError and ChatTemplateError
            raise UsageError(f"{error}.") from None
        print(f"{options.submission} on {options.model}, {engine.device.name}: loading …", file=sys.stderr)
        self.llm = engine.llm(folder, max_num_seqs=1)
        self._detokenizer = engine.get("detokenizer", "Detokenizer")

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The token ids of a conversation; of the last message's text where the model has no chat template.

        Raises UsageError for a conversation that the template refuses.
        """
        if self.template is None:
            return list(self.tokenizer.encode(messages[-1]["content"]))
        try:
            return self.template.encode(messages)
        except ValueError as error:  # ChatTemplateError
            raise UsageError(f"{error}.") from None

    def say(self, prompt: list[int]) -> str:
        """Print the answer as it comes, then how fast it was; the answer. Ctrl-C aborts the request."""
        start = time.monotonic()
        times: list[float] = []
        text: list[str] = []

        def show(piece: str) -> None:
            text.append(piece)
            print(piece, end="", flush=True)

        with self.engine.errors():
            detokenizer = self._detokenizer(self.tokenizer.decode)
        reason = "aborted"
        for output in self._stream(prompt):
            times.append(time.monotonic())
            if len(times) > self.params.max_tokens:
                raise EngineError(f"engine/llm.py: step gave more tokens than max_tokens = {self.params.max_tokens}.")
            reason = output.finish_reason
            if reason != "stop":
                with self.engine.errors():
                    piece = detokenizer.push(output.token)
                show(piece)
        with self.engine.errors():
            rest = detokenizer.finish()
        show(rest)
        print(flush=True)
        print(_speed(len(prompt), start, times, reason or "aborted"), file=sys.stderr)
        return "".join(text)

    def _stream(self, prompt: list[int]) -> Iterator[Any]:
        """The request's outputs, until it ends or Ctrl-C aborts it."""
        llm, idle = self.llm, 0
        with self.engine.errors():
            llm.add_request(REQUEST_ID, prompt, self.params)
        interrupted = Event()  # a step is never left in the middle
        with interruptible(interrupted.set):
            while not interrupted.is_set():
                with self.engine.errors():
                    outputs = llm.step()
                    running = llm.has_unfinished_requests()
                idle = 0 if outputs else idle + 1
                if idle == MAX_IDLE_STEPS:
                    raise EngineError(f"engine/llm.py: step gave no token {MAX_IDLE_STEPS} times in a row.")
                yield from outputs
                if not running:
                    return
            with self.engine.errors():
                llm.abort(REQUEST_ID)


def _chat_template(folder: Path) -> "ChatTemplate | None":
    """What find_template returns and raises; UsageError where nothing here renders a template."""
    try:
        from grader.serving.chat_template import find_template  # noqa: PLC0415  (extra model)
    except ImportError:
        raise UsageError("the Python package jinja2 is not installed: run make setup EXTRAS=model.") from None
    return find_template(folder)


def _speed(prompt: int, start: float, times: Sequence[float], reason: str) -> str:
    """What an answer took, in words; the first token's time holds the prefill and is told apart."""
    if not times:
        return f"[{prompt} tokens in, none out; {reason}]"
    rate = f", then {(len(times) - 1) / (times[-1] - times[0]):.1f} tokens/s" if len(times) > 1 else ""
    return f"[{prompt} tokens in, {len(times)} out; the first after {times[0] - start:.1f} s{rate}; {reason}]"
