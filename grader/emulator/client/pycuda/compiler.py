"""pycuda.compiler: CUDA C text is compiled for the emulated GPU by the system's C++ compiler, in the device process."""

import functools
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pycuda import refuse
from pycuda._connection import initialized
from pycuda.driver import CompileError, module_from_buffer

__getattr__ = functools.partial(refuse, "pycuda.compiler")
NEEDS_CPP = (
    "The source includes headers of C++, such as cuda_bf16.h: call SourceModule(source, no_extern_c=True), "
    'and write extern "C" in front of __global__ in the source, as the kernels of the course have it.\n'
)
DEFAULT_NVCC_FLAGS = os.environ.get("PYCUDA_DEFAULT_NVCC_FLAGS", "").split()


def compile(
    source: str, nvcc: str = "nvcc", options: Sequence[str] | None = None, keep: bool = False,
    no_extern_c: bool = False, arch: str | None = None, code: str | None = None, cache_dir: Any = None,
    include_dirs: Sequence[str] | None = None, target: str = "cubin",
) -> bytes:  # fmt: skip
    """Compile CUDA C for pycuda.driver.module_from_buffer; raises CompileError with the compiler's text.

    Without `no_extern_c` the source is wrapped in extern "C", as by PyCUDA, in which C++ headers do not compile. nvcc,
    arch, code and cache_dir choose nothing here.
    """
    assert target in ["cubin", "ptx", "fatbin"]
    if not no_extern_c:
        source = f'extern "C" {{\n#line 1 "kernel.cu"\n{source}\n}}\n'
    if keep:
        folder = Path(tempfile.mkdtemp())
        (folder / "kernel.cu").write_text(source, encoding="utf-8")
        print(f"*** compiler output in {folder}")
    options = list(DEFAULT_NVCC_FLAGS if options is None else options)
    folders = [os.path.abspath(folder) for folder in include_dirs or []]
    message = {"verb": "compile", "source": str(source), "options": options, "include_dirs": folders}
    connection = initialized("cuModuleLoadDataEx")
    answer = connection.request("cuModuleLoadDataEx", message)
    if "error" in answer:
        log = answer["log"] + NEEDS_CPP * ("template with C linkage" in answer["log"] and not no_extern_c)
        raise CompileError("nvcc compilation of kernel.cu failed", answer["command"], stdout="", stderr=log)
    if answer["log"]:
        text = f"The CUDA compiler succeeded, but said the following:\n{answer['log']}"
        warnings.warn(text, UserWarning, stacklevel=3)
    binary = f"emulated module {answer['module']}".encode()
    connection.compiled[binary] = message, answer
    return binary


class SourceModule:
    """The kernels of one CUDA C source; parameters and errors are those of `compile`."""

    def __init__(
        self, source: str, nvcc: str = "nvcc", options: Sequence[str] | None = None, keep: bool = False,
        no_extern_c: bool = False, arch: str | None = None, code: str | None = None, cache_dir: Any = None,
        include_dirs: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        binary = compile(source, nvcc, options, keep, no_extern_c, arch, code, cache_dir, include_dirs)
        self.module = module_from_buffer(binary)
        self.get_function = self.module.get_function
        self.get_global = self.module.get_global

    def __getattr__(self, name: str) -> Any:
        refuse("pycuda.compiler.SourceModule", name)
