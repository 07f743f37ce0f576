"""`python -m grader serve`: a submission's engine behind OpenAI's HTTP interface.

The main thread opens the engine and runs it, since a CUDA context belongs to the thread that made it; the HTTP server
has a thread of its own.
"""

import argparse
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from given.config import ConfigError, LlamaConfig
from given.tokenizer import Tokenizer, TokenizerError

from grader import UsageError
from grader.commands import Subparsers, read_count, read_port
from grader.model import find_model
from grader.serving.engine import Engine, add_engine_options
from grader.serving.engine_loop import SHUTTING_DOWN, EngineLoop
from grader.serving.interrupts import interruptible

CLOSING_SECONDS = 5
"""How long the HTTP server waits for clients to take their last bytes."""


def add_serve(commands: Subparsers) -> None:
    parser = commands.add_parser("serve", help="offer an engine to OpenAI's clients")
    parser.set_defaults(run=run_serve)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=read_port, default=8000, help="0 takes a free one (8000)")
    parser.add_argument(
        "--max-num-seqs", type=read_count(1), default=8, metavar="N", help="requests running at once (8)"
    )
    parser.add_argument(
        "--queue", type=read_count(0), default=64, metavar="N", help="requests waiting beside them (64)"
    )
    add_engine_options(parser)


def run_serve(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C: 0, or 1 when the engine failed for good. Raises what Engine raises, and UsageError."""
    with _listener(options.host, options.port) as listener:
        return _serve(listener, options)


def _serve(listener: socket.socket, options: argparse.Namespace) -> int:
    folder = find_model(options.model)
    engine = Engine(Path(options.submission).expanduser(), options.device)
    try:
        import uvicorn  # noqa: PLC0415  (extra serve)

        from grader.serving.server import Server  # noqa: PLC0415  (extra serve)
    except ImportError as error:
        raise UsageError(f"the Python package {error.name} is not installed: run make setup EXTRAS=serve.") from None
    model = _served_model(folder, options.model)
    print(f"{options.submission} on {options.model}, {engine.device.name}: loading …", file=sys.stderr)
    llm = engine.llm(folder, max_num_seqs=options.max_num_seqs)
    loop = EngineLoop(llm, engine.explain, lambda text: print(f"PagedLab: {text}", file=sys.stderr, flush=True))
    server = Server(loop, model, options.max_num_seqs + options.queue)
    http = uvicorn.Server(
        uvicorn.Config(server.app, log_level="warning", timeout_graceful_shutdown=CLOSING_SECONDS, lifespan="on")
    )
    thread = threading.Thread(target=_run_http, args=(http, listener, loop.stop), name="http", daemon=True)
    with interruptible(loop.stop, signal.SIGTERM):  # the engine ends its step first
        thread.start()
        host, port = listener.getsockname()[:2]
        print(
            f"Serving {model.name} on http://{_in_url(host)}:{port}/v1; Ctrl-C ends it (twice: at once).",
            file=sys.stderr,
            flush=True,
        )
        loop.run(server.deliver)
        http.should_exit = True
        thread.join()
    return 0 if loop.failure == SHUTTING_DOWN else 1


def _listener(host: str, port: int) -> socket.socket:
    """The socket, bound before the model is loaded, so that a port that is taken is told at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"{host} is no address of this machine: {error.strerror}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise UsageError(f"{host}:{port} cannot be used ({error.strerror}): choose another PORT= or HOST=.") from None
    if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        print(f"PagedLab: {host} can be reached from other machines, and there is no password.", file=sys.stderr)
    return listener


def _served_model(folder: Path, name: str) -> Any:
    """What the HTTP side needs of the model. Raises UsageError."""
    from grader.serving.chat_template import ChatTemplateError, find_template  # noqa: PLC0415  (extra serve)
    from grader.serving.openai_requests import ServedModel  # noqa: PLC0415  (extra serve)

    try:
        config, tokenizer = LlamaConfig.from_folder(folder), Tokenizer.from_folder(folder)
        template = find_template(folder)
    except (ConfigError, TokenizerError, ChatTemplateError) as error:
        raise UsageError(f"{error}.") from None
    return ServedModel(Path(name).name or folder.name, config, tokenizer, template)


def _run_http(http: Any, listener: socket.socket, stop: Callable[[], None]) -> None:
    try:
        http.run(sockets=[listener])
    finally:
        stop()  # without clients there is nothing to wait for


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
