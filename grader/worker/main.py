"""The untrusted side: one process that launches a submission's kernels and runs its Python, as the grader asks.

Run by grader/worker/child.py as a script, with the number of its socket and "emulated" or "gpu". It holds no seed, no
expected value and no score: it gets inputs and returns bytes. Student Python is imported only when it is called.
"""

import ctypes
import importlib.util
import os
import resource
import signal
import socket
import sys
import traceback
from pathlib import Path

GRADER = Path(__file__).resolve().parent.parent
MAX_REQUEST = 4 << 30
MAX_HELLO = 64_000
PR_SET_PDEATHSIG = 1


def load_package(name: str, folder: Path) -> None:
    """Make one package importable without its neighbours: what lies beside it stays out of the submission's reach."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def end_with_grader() -> None:
    """Let Linux kill this process when the grader is killed, also in the middle of a loop that never ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_with_grader()
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    load_package("grader", GRADER)
    emulated = sys.argv[2] == "emulated"
    if emulated:
        sys.path.insert(0, str(GRADER / "emulator" / "client"))
    from grader.ipc.framing import encode_header, pack_frame, receive_frame, send_frame
    from grader.worker.error_report import describe

    hello, _ = receive_frame(connection, MAX_HELLO, 0)
    engine = Path(hello["engine"])
    try:
        from grader.worker.submission_process import Submission

        submission = Submission(engine, emulated)
    except Exception:
        send_frame(connection, {"error": traceback.format_exc()})
        return
    send_frame(connection, {"ok": True})
    while True:
        header, payload = receive_frame(connection, MAX_REQUEST, MAX_REQUEST)
        try:
            answer, parts = getattr(submission, header["verb"])(header, memoryview(payload))
            encoded = encode_header(answer)
        except BaseException as error:  # SystemExit and KeyboardInterrupt of student code too
            encoded, parts = encode_header({"error": describe(error, engine)}), []
        connection.settimeout(None)
        connection.sendall(pack_frame(encoded, b"".join(parts)))


if __name__ == "__main__":
    try:
        main()
    except (EOFError, OSError):  # the grader closed the connection: the end
        os._exit(0)
