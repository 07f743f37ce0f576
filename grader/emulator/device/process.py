"""The emulated GPU: a process of its own that owns device memory, compiles kernels and runs them.

Started by launcher.py, with the kit's folder as current folder, as

    python -E -s -B -m grader.emulator.device.process CLIENT_FD CONTROL_FD ARENA_FD ARENA_BYTES CAPACITY CORES

The descriptors are inherited: two ends of stream socket pairs and a sparse file of ARENA_BYTES, shared with the client.
CAPACITY is the memory in bytes that programs may allocate. The process ends when either of its sockets is closed.

Every message is a frame of grader.ipc.framing. Device pointers are addresses in this process; a client reaches the same
byte at `pointer - base` in the shared file, after a `sync` that waits for outstanding work. Messages are worked off in
the order of their arrival. An ERROR is {"code": int, "name": "CUDA_ERROR_…", "text": CUDA's sentence, "detail": ours}.

Client's requests, each with one answer:
    {"verb": "hello"} → {"base", "arena", "capacity", "name": str, "compute_capability": [8, 6],
        "attributes": {NAME: int}}, NAME as in pycuda.driver.device_attribute, e.g. MAX_THREADS_PER_BLOCK
    {"verb": "alloc", "bytes"} → {"ptr"} | {"error": ERROR}          (1 for 0 bytes, 2 out of memory)
    {"verb": "memory"} → {"free", "total"} in bytes
    {"verb": "compile", "source": str, "options": [str], "include_dirs": [str]} → {"module": int, "kernels": {NAME:
        {"arguments": [{"size": bytes, "offset": bytes, "kind": "pointer" | "int" | "float" | "struct"}],
        "parameter_bytes": int (the end of the last argument), "shared_static": bytes, "max_threads": int}},
        "constants": {NAME: [ptr, bytes]}, "log": str, "command": [str], "cached": bool}
        | {"error": "compile", "log": str, "command": [str]}
        Only kernels declared extern "C" have an entry: any other name is CUDA's "named symbol not found".
    {"verb": "event", "event": int} → {"nanoseconds": int | null}    when `record` of this event was reached
    {"verb": "sync"} → {"error": null | ERROR}
        700, 710, 716 and 719 are sticky: every later sync reports them and later work is dropped. A refused gemm (code
        7, name CUBLAS_STATUS_INVALID_VALUE) and a refused launch (1 or 701) are reported once.
One way, without an answer; what goes wrong is reported by the next sync:
    {"verb": "free", "ptr"}                                          an unknown pointer is ignored
    {"verb": "launch", "module", "kernel": str, "grid": [x, y, z], "block": [x, y, z], "shared": bytes} and the packed
        arguments as payload: each at its `offset`, C alignment, parameter_bytes long. The client checks limits itself
        first (it knows parameter_bytes, max_threads and shared_static) so that errors are raised at the call.
    {"verb": "memset", "ptr", "width": 1 | 2 | 4, "value": int, "count"}
    {"verb": "copy", "target", "source", "bytes"}                    device to device
    {"verb": "gemm", "trans_a": bool, "trans_b": bool, "m", "n", "k", "alpha": float, "a": ptr, "lda", "b": ptr, "ldb",
        "beta": float, "c": ptr, "ldc", "c_type": "bf16" | "f32"}    cublasGemmEx, column-major; a and b bf16
    {"verb": "record", "event": int}                                 note the time at which the queue is here
    {"verb": "copied", "to": "device" | "host", "ptr", "bytes"}      the client copies so much in shared memory
    {"verb": "array", "ptr", "bytes", "written": bool}               the part of an allocation that may be used

Parent's requests on the control socket, each with one answer, given once no request of the client is left:
    {"verb": "set_mode", "empty": bool, "order_seed": int} → {}      absent keys keep their value
    {"verb": "observe", "counted": bool, "checked": bool, "profiled": bool, "change": [at, place]} → {}      begin to
        count from 0: kernels in detail if `counted`, and their instructions if `profiled` too; change a row of an
        output, see intervention.py; all but the first may be absent
    {"verb": "observed"} → since `observe`: Observation.report(), bytes of memory in use: "used" now, "peak" at most,
        and "reports": what was found in checked kernels, see reports.py; after a `change` also the Intervention's
        "outputs" and "changed"
    {"verb": "limit", "bytes": int | null} → {}                      no allocation beyond so much memory in use
    {"verb": "first_written", "ptr", "bytes", "except": [[begin, end], …]} → {"offset": int | null}
        of the first byte at ptr that is not 0, apart from these ranges of offsets, which ascend
A kernel that crashes this process makes it send {"crash": "kernel …, block (…), thread (…), address …"} on the control
socket before it ends.
"""

import contextlib
import os
import select
import socket
import sys
import threading

from grader.emulator.compiler.toolchain import CompileError
from grader.emulator.device.capability import error
from grader.emulator.device.emulated_gpu import EmulatedGPU
from grader.ipc.framing import FrameReader, receive_frame, send_frame

MAX_HEADER = 4 << 20
MAX_PAYLOAD = 1 << 20
READ_AHEAD = 1 << 16


def end_with_owner(control: socket.socket) -> None:
    """End this process when its owner is gone, also in the middle of a kernel that never ends."""
    if sys.platform == "darwin":  # whose poll reports no end that was not asked for
        queue, is_gone = select.kqueue(), False
        event = select.kevent(control, select.KQ_FILTER_READ, select.KQ_EV_ADD | select.KQ_EV_CLEAR)
        while not is_gone:
            is_gone = any(found.flags & select.KQ_EV_EOF for found in queue.control([event], 1))
    else:
        waiting = select.poll()
        waiting.register(control, 0)  # no event but the peer's end, which is always reported
        waiting.poll()
    os._exit(1)


def main() -> None:
    client_fd, control_fd, arena_fd, arena_bytes, capacity, cores = map(int, sys.argv[1:])
    client, control = socket.socket(fileno=client_fd), socket.socket(fileno=control_fd)
    threading.Thread(target=end_with_owner, args=(control,), daemon=True).start()
    try:
        gpu = EmulatedGPU(arena_fd, arena_bytes, capacity, cores, control_fd)
    except (CompileError, OSError) as reason:  # no compiler, or too little address space: the first answer says so
        with contextlib.suppress(EOFError):
            receive_frame(client, MAX_HEADER, 0)
            send_frame(client, {"error": error(100, str(reason).strip())})
        return
    requests = FrameReader(client, MAX_HEADER, MAX_PAYLOAD, read_ahead=READ_AHEAD)
    with contextlib.suppress(EOFError):
        while True:
            if not requests.has_more() and client not in select.select([control, client], [], [])[0]:
                request, _ = receive_frame(control, MAX_HEADER, 0)
                send_frame(control, gpu.control(request))
            else:
                header, payload = requests.next()
                gpu.serve(client, header, bytes(payload))


if __name__ == "__main__":
    main()
