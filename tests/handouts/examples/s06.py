"""The numbers of 06-gemm.md."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.handouts.formats import many, num

X = np.asarray([[1, 2, 3], [4, 5, 6]])
W = np.asarray([[1, 0, 1], [0, 2, 1], [1, 1, 0], [2, 0, 0]])
OUT = X @ W.T
M, N, K = 64, 64, 128
NAIVE = 4 * M * N * K
STORES = 2 * M * N


def loads(tile: int) -> int:
    """The bytes that a tiled kernel's loads request."""
    return NAIVE // tile


def product() -> Iterator[str]:
    yield "out[m, n] = x[m, 0] · w[n, 0] + x[m, 1] · w[n, 1] + … + x[m, K−1] · w[n, K−1]"
    (m, k), n = X.shape, len(W)
    yield f"By hand, M = {m}, K = {k}, N = {n}:"
    lines = [[*map(" ".join, ((str(v) for v in row) for row in rows))] for rows in (X.tolist(), W.tolist())]
    outs = [" ".join(f"{value:>2}" for value in row) for row in OUT]
    yield f"""``` x = {lines[0][0]} w = {lines[1][0]} out = {outs[0]} {lines[0][1]} {lines[1][1]} {outs[1]}
        {lines[1][2]} {lines[1][3]} ```"""
    terms = " + ".join(f"{a}·{b}" for a, b in zip(X[1], W[2], strict=True))
    column, row, block = 2, 1, 2
    yield f"""
        out[{row}, {column}] = {terms} = {OUT[row, column]}. With blocks of {block} × {block} threads it belongs to
        block ({column // block}, {row // block}): columns 2 and 3, rows 0 and 1; there to the thread with `threadIdx.x`
        = {column % block} and `threadIdx.y` = {row % block}.
    """
    yield f"the example's out must read {many(OUT.ravel(), between=' ')} in memory"


def requested() -> Iterator[str]:
    yield "A naive thread reads 2·K elements of 2 bytes for one output: all threads request 4·M·N·K bytes."
    yield "each element read from global memory serves t threads, and the total is 4·M·N·K / t."
    tile = 16
    limit = M * N * K // 2
    assert loads(8) + STORES > limit >= loads(tile) + STORES
    yield f"""
        The figure in words: out is {M} × {N}, K = {K}, tiles of {tile}. The block of the green tile needs {tile}
        rows of x (blue) and {tile} rows of w (violet). It walks along K in {K // tile} steps; in each step it holds
        a {tile} × {tile} piece of both in shared memory (orange). Its loads, with those of all other blocks,
        request {num(loads(tile))} bytes in place of {num(NAIVE)}; the stores to out add {num(STORES)}. The check
        allows M·N·K / 2 = {num(limit)} for both together, so tiles of 8 ({num(loads(8))} for the loads alone) just
        miss it.
    """
    yield f"""{M}, {N}, {K}: {num(loads(8) + STORES)} bytes for tiles of 8, {num(loads(tile) + STORES)} for tiles of
        {tile}, {num(limit)} allowed"""
    yield f"""![One {tile} × {tile} tile of out needs {tile} rows of x and {tile} rows of w, walked through in steps
        of {tile}]"""


def banks() -> Iterator[str]:
    conflicts, spread = (len({width * x % 32 for x in range(16)}) for width in (16, 17))
    yield f"""
        Shared memory is spread over 32 *banks*; consecutive 4-byte words lie in consecutive banks. In one step each
        bank serves a single word to a warp (any number of lanes may share it), so lanes that want different words
        of one bank wait for each other: a *bank conflict*. With `float tile[16][16]`, lane x reading `tile[x][k]`
        wants word 16·x + k, which for 16 lanes means only {conflicts} of the 32 banks. With a row of 17,
        `tile[16][17]`, the words 17·x + k fall into {spread} different banks. The result is the same, only faster.
        `make profile STAGE=6` counts both
    """


def columns() -> Iterator[str]:
    assert (np.arange(1, 7).reshape(3, 2, order="F") == np.arange(1, 7).reshape(2, 3).T).all()
    yield """
        The figure in words: the six numbers 1 2 3 4 5 6 are, by rows, the 2 × 3 matrix with rows 1 2 3 and 4 5 6; by
        columns with ld = 3 they are the 3 × 2 matrix with those as columns.
    """
    yield "![Six numbers in memory are a 2 × 3 matrix by rows and its 3 × 2 transpose by columns]"


def gemm_ex(transposed: tuple[bool, bool], m: int, n: int, k: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the memory of c holds; a and b are stored by columns with the leading dimension k or m."""
    first = a.ravel().reshape(k, m, order="F").T if transposed[0] else a.ravel().reshape(m, k, order="F")
    second = b.ravel().reshape(n, k, order="F").T if transposed[1] else b.ravel().reshape(k, n, order="F")
    return (first @ second).ravel(order="F")


def cublas() -> Iterator[str]:
    (rows, k), outputs = X.shape, len(W)
    assert (gemm_ex((True, False), outputs, rows, k, W, X) == OUT.ravel()).all()
    yield f"""
        We want the numbers of out to lie in memory as {many(OUT.ravel(), between=" ")}. Read by columns with ld =
        {outputs} that is a {outputs} × {rows} matrix, the transpose of out: outᵀ = w · xᵀ.
    """
    yield f"""
        its result is {outputs} × {rows}, so m = {outputs} and n = {rows}: the *other way round* than M = {rows}, N =
        {outputs}; k = {k}; ldc = {outputs};
    """
    yield f"""
        its first operand must be w, {outputs} × {k}. The numbers of w, {many(W.ravel()[:6], between=" ")} …, read by
        columns with ld = {k} are a {k} × {outputs} matrix, wᵀ. To have w, transpose: `OP_T`, lda = {k};
    """
    yield f"""
        its second operand must be xᵀ, {k} × {rows}. The numbers of x, read by columns with ld = {k}, are just that:
        `OP_N`, ldb = {k}.
    """
    yield f"""cublas.gemm_ex(cublas.OP_T, cublas.OP_N, {outputs}, {rows}, {k}, 1.0, w, {k}, x, {k}, 0.0,
        out, {outputs})"""
    yield "With beta = 0, c is not read."


def edges() -> Iterator[str]:
    yield "If K = 0 the sum is empty and out is 0."
    tile = 16
    yield f"so with 16 × 16 threads a warp is two rows of {tile}."
    yield f"K = 33, tiles of {tile}: the third piece has one real column"
    assert 33 - 2 * tile == 1
    yield f"M = 17, tile {tile}: rows 17 to {-(-17 // tile) * tile - 1} do not exist"
    yield f"N = 17: {-(-17 // tile) * tile - 17} columns of threads of the last block leave early"
    yield "M, N, K = 5, 512, 2048"
    yield "a fast thread loads step 1 while a slow one multiplies step 0"
    total = ml_dtypes.bfloat16(0)
    for _ in range(1500):
        total = ml_dtypes.bfloat16(float(total) + 1)
    yield f"{num(1500)} products of 1 in bf16 stop at {float(total):g}"
    yield f'"{float(total):g}, want 1500" in s06.6'


EXAMPLES = (product, requested, banks, columns, cublas, edges)
