"""The emulated GPU: a process of its own that owns device memory, compiles kernels and runs them.

Started by launcher.py, with the kit's folder as current folder, as

    python -E -s -B -m grader.emulator.device CLIENT_FD CONTROL_FD ARENA_FD ARENA_BYTES CAPACITY CORES

The descriptors are inherited: two ends of stream socket pairs and a sparse file of ARENA_BYTES, shared with the client.
CAPACITY is the memory in bytes that programs may allocate. The process ends when the client's socket is closed.

Every message is a frame of grader.framing. Device pointers are addresses in this process; a client reaches the same
byte at `pointer - base` in the shared file, after a `sync` that waits for outstanding work. Messages are worked off in
the order of their arrival. An ERROR is {"code": int, "name": "CUDA_ERROR_…", "text": CUDA's sentence, "detail": ours}.

Client's requests, each with one answer:
    {"verb": "hello"} → {"base", "arena", "capacity", "name": str, "compute_capability": [8, 6], "attributes": {NAME: int}}
        NAME as in pycuda.driver.device_attribute, e.g. MAX_THREADS_PER_BLOCK
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

Parent's requests on the control socket, each with one answer; at times when no work is outstanding:
    {"verb": "set_mode", "empty": bool, "counted": bool, "order_seed": int} → {}    absent keys keep their value
    {"verb": "counters"} → {"launches": [fields of grader.counters.Counters]}       of counted launches since the last call
    {"verb": "statistics"} → {"launches": int, "used": bytes, "peak": bytes}        since the start
A kernel that crashes this process makes it send {"crash": "kernel …, block (…), thread (…), address …"} on the control
socket before it ends.
"""
