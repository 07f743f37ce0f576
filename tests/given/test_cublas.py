"""gemm_ex against NumPy, column by column."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16


@pytest.fixture
def cublas(emulated_gpu: None) -> ModuleType:
    from given import cublas

    return cublas


def upload(values: np.ndarray) -> Any:
    from pycuda import gpuarray

    return gpuarray.to_gpu(values)


def by_columns(matrix: np.ndarray, leading_dimension: int) -> np.ndarray:
    """The memory of a column-major matrix: NaN in the rows below it."""
    stored = np.full((matrix.shape[1], leading_dimension), np.nan, matrix.dtype)
    stored[:, : matrix.shape[0]] = matrix.T
    return stored


@pytest.mark.parametrize("dtype", [bfloat16, np.float32])
@pytest.mark.parametrize(("trans_a", "trans_b"), [("N", "N"), ("N", "T"), ("T", "N"), ("T", "T")])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 3, 7), (40, 2, 33), (7, 64, 16)])
def test_products(cublas: ModuleType, m: int, n: int, k: int, trans_a: str, trans_b: str, dtype: Any) -> None:
    rng = np.random.default_rng(m * n * k)
    a, b = rng.standard_normal((m, k)).astype(bfloat16), rng.standard_normal((k, n)).astype(bfloat16)
    stored_a, stored_b = (a.T if trans_a == "T" else a), (b.T if trans_b == "T" else b)
    lda, ldb, ldc = stored_a.shape[0] + 3, stored_b.shape[0] + 1, m + 2
    c = upload(np.full((n, ldc), np.nan, dtype))  # with beta = 0 what c holds must not matter
    operations = {"N": cublas.OP_N, "T": cublas.OP_T}
    cublas.gemm_ex(
        operations[trans_a], operations[trans_b], m, n, k, 0.5,
        upload(by_columns(stored_a, lda)), lda, upload(by_columns(stored_b, ldb)), ldb, 0.0, c, ldc,
    )  # fmt: skip
    got = c.get().astype(np.float64)
    want = 0.5 * a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got[:, :m].T, want, rtol=2**-8 if dtype is bfloat16 else 1e-5, atol=1e-5)
    assert np.isnan(got[:, m:]).all()


def test_beta_adds_what_was_there(cublas: ModuleType) -> None:
    a, b = np.ones((4, 2), bfloat16), np.ones((2, 3), bfloat16)
    c = upload(np.full((3, 4), 10, np.float32))
    cublas.gemm_ex(
        cublas.OP_N, cublas.OP_N, 4, 3, 2, 1.0, upload(by_columns(a, 4)), 4, upload(by_columns(b, 2)), 2, 0.5, c, 4
    )
    np.testing.assert_array_equal(c.get(), np.full((3, 4), 7))


def test_what_is_refused(cublas: ModuleType) -> None:
    a, b, c = upload(np.ones((8, 8), bfloat16)), upload(np.ones((8, 8), bfloat16)), upload(np.ones((8, 8), np.float32))

    def product(lda: int = 8, ldb: int = 8, ldc: int = 8, a: Any = a, c: Any = c) -> None:
        cublas.gemm_ex(cublas.OP_T, cublas.OP_N, 8, 8, 8, 1.0, a, lda, b, ldb, 0.0, c, ldc)

    for leading_dimensions in ({"lda": 7}, {"ldb": 7}, {"ldc": 7}):
        with pytest.raises(cublas.CublasError, match="INVALID_VALUE"):
            product(**leading_dimensions)
    with pytest.raises(TypeError, match="a is a GPUArray of dtype float32, wanted a GPUArray of bfloat16"):
        product(a=c)
    with pytest.raises(TypeError, match="c is a ndarray of dtype float32"):
        product(c=np.ones((8, 8), np.float32))
