"""What is not emulated is refused: the message names the file and line, the feature, and what to do without it."""

import pytest

from grader.emulator.compiler.rewriter import SourceError, rewrite

STATEMENTS = [
    ("wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;", "wmma", "tensor cores", "loops"),
    ("nvcuda::wmma::fill_fragment(c, 0.0f);", "nvcuda", "tensor cores", "loops"),
    ("__pipeline_memcpy_async(target, source, 16);", "__pipeline_memcpy_async", "cp.async", "assignment"),
    ("cooperative_groups::memcpy_async(block, tile, x, 64);", "memcpy_async", "cp.async", "assignment"),
    ("cuda::pipeline<cuda::thread_scope_thread> pipe;", "cuda::", "is not emulated", "use atomicAdd"),
    ("cuda::atomic_ref<int> cell(*out);", "cuda::", "is not emulated", "use atomicAdd"),
    ("typedef cub::BlockReduce<float, 128> Reduce;", "cub::", "is not emulated", "shuffles"),
    ("thrust::sort(x, x + n);", "thrust::", "is not emulated", "from Python"),
    ('asm volatile("mov.u32 %0, %laneid;" : "=r"(lane));', "asm", "inline PTX", "write it in CUDA C"),
    ("unsigned p = __cvta_generic_to_shared(tile);", "__cvta_generic_to_shared", "inline PTX", "write it in CUDA C"),
    ("float v = tex2D<float>(image, x, y);", "tex2D", "textures", "through a pointer"),
    ("float v = tex1Dfetch(image, i);", "tex1Dfetch", "textures", "through a pointer"),
    ("surf2Dwrite(v, surface, x, y);", "surf2Dwrite", "surfaces", "through a pointer"),
    ("child<<<1, 32>>>(out);", "<<<", "dynamic parallelism", "from Python"),
    ("int v = __shfl(x, 0);", "__shfl", "removed from CUDA", "use __shfl_sync"),
    ("int v = __shfl_xor(x, 1);", "__shfl_xor", "removed from CUDA", "use __shfl_xor_sync"),
    ("unsigned v = __ballot(x);", "__ballot", "removed from CUDA", "use __ballot_sync"),
    ("cooperative_groups::this_grid().sync();", "this_grid", "whole grid", "launch a second one"),
    ("auto all = cooperative_groups::this_grid(); all.sync();", "this_grid", "whole grid", "launch a second one"),
    ("cg::grid_group all = cg::this_grid(); cg::sync(all);", "this_grid", "whole grid", "launch a second one"),
    ("cudaMalloc(&x, 4);", "cudaMalloc", "host functions", "from Python"),
    ("cudaMemcpyToSymbol(weights, w, 4);", "cudaMemcpyToSymbol", "host functions", "from Python"),
    ("cudaDeviceSynchronize();", "cudaDeviceSynchronize", "host functions", "from Python"),
    ("cublasSgemm(handle);", "cublasSgemm", "library of the host", "from Python"),
    ("curand_init(1, 2, 3, &state);", "curand_init", "cuRAND", "in Python"),
    ("__nv_fp8_e4m3 v;", "__nv_fp8_e4m3", "fp8", "bf16"),
    ("__shared__ float total = 0;", "__shared__", "initialiser", "write it in the kernel"),
]
OUTSIDE = [
    ("#include <mma.h>", "<mma.h>", "tensor cores", "loops"),
    ("#include <cuda_pipeline.h>", "<cuda_pipeline.h>", "cp.async", "assignment"),
    ("#include <cuda/pipeline>", "<cuda/pipeline>", "cuda::pipeline", "assignment"),
    ("#include <cuda/std/array>", "<cuda/std/array>", "libcu++", "use atomicAdd"),
    ('#include "cub/cub.cuh"', "<cub/cub.cuh>", "CUB", "shuffles"),
    ("#include <thrust/device_vector.h>", "<thrust/device_vector.h>", "Thrust", "from Python"),
    ("#include <curand_kernel.h>", "<curand_kernel.h>", "cuRAND", "in Python"),
    ("#include <cudnn.h>", "<cudnn.h>", "library of the host", "not emulated"),
    ("#include <torch/extension.h>", "<torch/extension.h>", "PyTorch", "from Python"),
    ("texture<float, 2> image;", "texture", "textures", "through a pointer"),
    ("cudaTextureObject_t image;", "cudaTextureObject_t", "textures", "through a pointer"),
    ("__managed__ int total;", "__managed__", "managed memory", "Module.get_global"),
]


@pytest.mark.parametrize(("statement", "name", "feature", "advice"), STATEMENTS, ids=[row[0] for row in STATEMENTS])
def test_in_a_kernel(statement: str, name: str, feature: str, advice: str) -> None:
    source = f'#line 1 "k.cu"\n\n__global__ void f(int* out, float* x, int n) {{\n    int i = 0;\n    {statement}\n}}\n'
    check(source, 4, name, feature, advice)


@pytest.mark.parametrize(("line", "name", "feature", "advice"), OUTSIDE, ids=[row[1] for row in OUTSIDE])
def test_outside_of_a_kernel(line: str, name: str, feature: str, advice: str) -> None:
    check(f'#line 1 "k.cu"\n// <<<>>>, asm and cudaMalloc in a comment\n\n{line}\n', 3, name, feature, advice)


def check(source: str, line: int, name: str, feature: str, advice: str) -> None:
    with pytest.raises(SourceError) as caught:
        rewrite(source)
    message = str(caught.value)
    assert message.startswith(f"k.cu:{line}: error: ")
    for part in (name, feature, advice):
        assert part in message
