"""pycuda.compiler: CUDA C text is compiled for the emulated GPU by the system's C++ compiler, in the device process."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pycuda._connection import initialized
from pycuda.driver import CompileError, module_from_buffer

DEFAULT_NVCC_FLAGS = os.environ.get("PYCUDA_DEFAULT_NVCC_FLAGS", "").split()
_compiled: dict[bytes, dict[str, Any]] = {}
_NOT_EMULATED = ("DynamicModule", "DynamicSourceModule", "compile_plain", "get_nvcc_version", "preprocess_source")


def __getattr__(name: str) -> NoReturn:
    if name in _NOT_EMULATED:
        raise NotImplementedError(f"pycuda.compiler.{name} is not emulated: it needs a GPU and PyCUDA itself")
    raise AttributeError(f"module 'pycuda.compiler' has no attribute '{name}'")


def compile(
    source: str,
    nvcc: str = "nvcc",
    options: Sequence[str] | None = None,
    keep: bool = False,
    no_extern_c: bool = False,
    arch: str | None = None,
    code: str | None = None,
    cache_dir: str | bool | None = None,
    include_dirs: Sequence[str] | None = None,
    target: str = "cubin",
) -> bytes:
    """Compile CUDA C; what is returned is for pycuda.driver.module_from_buffer alone.

    Raises CompileError with the compiler's text. Without `no_extern_c` the source is wrapped in extern "C", as PyCUDA
    does, in which C++ headers do not compile. nvcc, arch, code and cache_dir choose nothing here.
    """
    assert target in ["cubin", "ptx", "fatbin"]
    source = str(source)
    if not no_extern_c:
        source = f'extern "C" {{\n#line 1 "kernel.cu"\n{source}\n}}\n'
    if keep:
        folder = Path(tempfile.mkdtemp())
        (folder / "kernel.cu").write_text(source, encoding="utf-8")
        print(f"*** compiler output in {folder}")
    answer = initialized("cuModuleLoadDataEx").request(
        "cuModuleLoadDataEx",
        {
            "verb": "compile",
            "source": source,
            "options": list(DEFAULT_NVCC_FLAGS if options is None else options),
            "include_dirs": [os.path.abspath(folder) for folder in include_dirs or []],
        },
    )
    if "error" in answer:
        raise CompileError("nvcc compilation of kernel.cu failed", answer["command"], stdout="", stderr=answer["log"])
    if answer["log"]:
        text = f"The CUDA compiler succeeded, but said the following:\n{answer['log']}"
        warnings.warn(text, UserWarning, stacklevel=4)
    binary = f"emulated module {answer['module']}".encode()
    _compiled[binary] = answer
    return binary


def compiled_module(binary: bytes) -> dict[str, Any]:
    """What the device answered when `binary` was compiled."""
    if binary not in _compiled:
        raise NotImplementedError("module_from_buffer takes only what pycuda.compiler.compile returned: no GPU code")
    return _compiled[binary]


class SourceModule:
    """The kernels of one CUDA C source. Parameters and errors are those of `compile`."""

    def __init__(
        self,
        source: str,
        nvcc: str = "nvcc",
        options: Sequence[str] | None = None,
        keep: bool = False,
        no_extern_c: bool = False,
        arch: str | None = None,
        code: str | None = None,
        cache_dir: str | bool | None = None,
        include_dirs: Sequence[str] | None = None,
    ) -> None:
        binary = compile(source, nvcc, options, keep, no_extern_c, arch, code, cache_dir, include_dirs)
        self.module = module_from_buffer(binary)
        self.get_function = self.module.get_function
        self.get_global = self.module.get_global
        self.get_texref = self.module.get_texref
        self.get_surfref = self.module.get_surfref
