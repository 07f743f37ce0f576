"""What the emulated GPU tells of itself, compute capability 8.6, and CUDA's errors by their code."""

from typing import Any

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED = 99 * 1024

ERRORS = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    7: ("CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed to the function"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    701: ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"),
    710: ("CUDA_ERROR_ASSERT", "device-side assert triggered"),
    716: ("CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
}
STICKY = {700, 710, 716, 719}

ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": MAX_THREADS,
    "MAX_BLOCK_DIM_X": MAX_BLOCK[0],
    "MAX_BLOCK_DIM_Y": MAX_BLOCK[1],
    "MAX_BLOCK_DIM_Z": MAX_BLOCK[2],
    "MAX_GRID_DIM_X": MAX_GRID[0],
    "MAX_GRID_DIM_Y": MAX_GRID[1],
    "MAX_GRID_DIM_Z": MAX_GRID[2],
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": MAX_SHARED,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 100 * 1024,
    "TOTAL_CONSTANT_MEMORY": 64 * 1024,
    "WARP_SIZE": 32,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_THREADS_PER_MULTIPROCESSOR": 1536,
    "COMPUTE_CAPABILITY_MAJOR": 8,
    "COMPUTE_CAPABILITY_MINOR": 6,
    "UNIFIED_ADDRESSING": 1,
}


def error(code: int, detail: str = "") -> dict[str, Any]:
    """An ERROR of the protocol in process.py."""
    name, text = ERRORS[code]
    return {"code": code, "name": name, "text": text, "detail": detail}


class Refused(Exception):
    """A request that CUDA refuses without doing anything; `error` is what the next sync reports."""

    def __init__(self, code: int, detail: str) -> None:
        self.error = error(code, detail)
