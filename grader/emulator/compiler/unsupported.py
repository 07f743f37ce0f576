"""What of CUDA the emulator lacks: by name in a source, or by header, the feature and what to do without it."""

import re

_ASYNCHRONOUS = (
    "asynchronous copies (cp.async, cuda::pipeline) are not emulated: copy by assignment, then call __syncthreads()"
)
_TENSOR_CORES = "wmma (tensor cores) is not emulated: multiply with loops over shared memory, or use a GPU"
_TEXTURES = "textures and surfaces are not emulated: read the array through a pointer"
_RANDOM = "cuRAND is not emulated: draw the numbers in Python, or hash the index of the element"
_FP8 = "fp8 is not emulated: use bf16 or half"
WHOLE_GRID = "synchronisation of a whole grid or cluster is not emulated: end the kernel, and launch a second one"
_LIBRARIES = {
    "cub": "it is a library on top of CUDA: write it with shuffles and shared memory",
    "thrust": "it is a library of the host: call kernels of your own from Python",
    "cuda": "libcu++ is not CUDA C itself: use atomicAdd and its kin, arrays and cooperative groups",
    "cute": "it is a library on top of CUDA: index arrays yourself",
    "cutlass": "it is a library on top of CUDA: write the loops yourself",
    "torch": "it is a library of the host: pass arrays from Python",
    "at": "it is a library of the host: pass arrays from Python",
}
_HEADERS = {
    "cub/": f"CUB is not emulated: {_LIBRARIES['cub']}",
    "thrust/": f"Thrust is not emulated: {_LIBRARIES['thrust']}",
    "cuda/pipeline": _ASYNCHRONOUS,
    "cuda/": f"libcu++ (cuda::) is not emulated: {_LIBRARIES['cuda']}",
    "cuda_pipeline": _ASYNCHRONOUS,
    "cuda_awbarrier": _ASYNCHRONOUS,
    "cooperative_groups/memcpy_async": _ASYNCHRONOUS,
    "mma.h": _TENSOR_CORES,
    "curand": _RANDOM,
    "cuda_fp8": _FP8,
    "cutlass/": f"CUTLASS is not emulated: {_LIBRARIES['cutlass']}",
    "cute/": f"CuTe is not emulated: {_LIBRARIES['cute']}",
    "texture": _TEXTURES,
    "surface": _TEXTURES,
    "cudnn": "cuDNN is a library of the host, and not emulated",
    "torch/": f"PyTorch is not emulated: {_LIBRARIES['torch']}",
    "ATen/": f"PyTorch is not emulated: {_LIBRARIES['torch']}",
}
_HOST_FUNCTIONS = (
    r"cuda(?:Malloc|Free|Memcpy|Memset|Host|Func|Stream|Event|Launch|Occupancy|Error|Success|(?:Device|Thread)Sync|DeviceReset"
    r"|DeviceProp|[GS]etDevice|GetLast|PeekAt|GetError|GetSymbol)\w*"
)
_HOST_LIBRARIES = r"cu(?:blas|dnn)[A-Z]\w+"
_NAMES = {
    r"asm|__asm__|__asm|__cvta_\w+": "inline PTX (asm) is not emulated: write it in CUDA C, or use a GPU",
    r"<<<": "launching a kernel from source (<<< >>>, dynamic parallelism) is not emulated: launch it from Python",
    r"tex[123]D\w*|surf[123]D\w*|cuda(?:Texture|Surface)Object_t|cudaArray\w*": _TEXTURES,
    r"__pipeline_\w+|memcpy_async|__cp_async\w*|CUtensorMap": _ASYNCHRONOUS,
    r"wmma|nvcuda": _TENSOR_CORES,
    r"__nv_fp8\w*": _FP8,
    r"curand\w+": _RANDOM,
    r"__managed__": "managed memory is not emulated: use a __device__ variable, and Module.get_global from Python",
    r"this_multi_grid|this_cluster|__cluster_dims__|multi_grid_group|cluster_group": WHOLE_GRID,
    _HOST_FUNCTIONS: (
        "CUDA's host functions cannot be called here: keep the kernels, and allocate, copy and launch from Python"
    ),
    _HOST_LIBRARIES: "it is a library of the host: call it from Python",
}
_LEGACY = {"__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__ballot", "__any", "__all"}


def header(name: str) -> str | None:
    """Why a header cannot be included; None when nothing is known against it."""
    found = next((reason for prefix, reason in _HEADERS.items() if name.startswith(prefix)), None)
    return found and f"<{name}>: {found}"


def is_host(name: str) -> bool:
    """Whether CUDA has this name for programs of the host alone."""
    return re.fullmatch(f"{_HOST_FUNCTIONS}|{_HOST_LIBRARIES}", name) is not None


def name(text: str, following: str) -> str | None:
    """Why a name cannot be used, before the token `following`; None when nothing is known against it."""
    if text in _LEGACY:
        return f"{text} was removed from CUDA: use {text}_sync with a mask of lanes"
    if following == "::" and text in _LIBRARIES:
        return f"{text}:: is not emulated: {_LIBRARIES[text]}"
    if following == "<" and text == "texture":
        return f"texture: {_TEXTURES}"
    found = next((reason for names, reason in _NAMES.items() if re.fullmatch(names, text)), None)
    return found and f"{text}: {found}"
