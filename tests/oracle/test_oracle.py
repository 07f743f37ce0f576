"""The oracle: its operations against plain loops, its model against the stored references of Hugging Face."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from given.config import Llama3RopeScaling, LlamaConfig
from numpy.typing import ArrayLike, NDArray

from grader import oracle
from grader.failure import Failure
from grader.judge.compare import Expected, expect, expect_rows
from grader.oracle.llama import HUGGING_FACE_BF16, LlamaOracle, Replaced, round_bf16
from grader.oracle.references import TINY, ReferenceFileError, ReferenceModel, load_oracle, load_references
from grader.oracle.variants import variant_model as write_variant
from tests.oracle.agreement import disagreements

Array = NDArray[Any]

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture(scope="module")
def tiny() -> ReferenceModel:
    return load_references()


def draw(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (scale * rng.standard_normal(shape)).astype(BF16)


def float32(values: Any) -> Array:
    return np.asarray(values, np.float32)


def int32(values: ArrayLike) -> Array:
    return np.asarray(values, np.int32)


def inner(x: Array, y: Array) -> float:
    return sum(float(a) * float(b) for a, b in zip(x, y, strict=True))


def accepts(expected: Expected, got: ArrayLike) -> bool:
    try:
        expect(np.asarray(got, np.float64).astype(expected.dtype), expected)
    except Failure:
        return False
    return True


# Operations


def test_elementwise_operations(rng: np.random.Generator) -> None:
    x, y = draw(rng, 3, 7, scale=5), draw(rng, 3, 7)
    a, b = x.astype(float), y.astype(float)
    silu = np.array(
        [[g * u / (1 + math.exp(-g)) for g, u in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]
    )
    assert np.allclose(oracle.silu_mul(x, y).values, silu, rtol=1e-14)
    assert np.array_equal(oracle.residual_add(x, y).values, (a + b).astype(BF16))
    assert np.array_equal(oracle.embedding(x, int32([2, 0, 2])).values, x[[2, 0, 2]])
    one, other = x.astype(np.float32)[0], float32([np.inf, np.nan, 1e38, 1, 2, 3, 4])
    assert accepts(oracle.vector_add(one, other), one + other)
    assert not accepts(oracle.vector_add(one, other), np.nextafter(one + other, np.float32(0)))


def test_silu_mul_at_extreme_gates() -> None:
    gate = float32([-3e38, -1e4, -100, -90, 0, 1e4, np.nan]).astype(BF16)
    expected = oracle.silu_mul(gate, np.full(gate.shape, 1e30, BF16))
    zero_below = np.where(gate.astype(float) < -89, 0.0, expected.values)
    assert accepts(expected, zero_below)
    assert accepts(expected, expected.values)
    assert not accepts(expected, np.where(np.isnan(gate.astype(float)), 0.0, zero_below))


def test_rmsnorm(rng: np.random.Generator) -> None:
    x, weight = draw(rng, 4, 9, scale=0.01), draw(rng, 9)
    want = [
        [
            float(v) / math.sqrt(sum(float(u) ** 2 for u in row) / 9 + 1e-5) * float(w)
            for v, w in zip(row, weight, strict=True)
        ]
        for row in x
    ]
    expected = oracle.rmsnorm(x, weight, 1e-5)
    assert np.allclose(expected.values, want, rtol=1e-6)  # eps is the float32 that a kernel gets
    before_weight = round_bf16(expected.values / weight.astype(float)) * weight.astype(float)
    assert accepts(expected, before_weight)
    assert not accepts(expected, oracle.rmsnorm(x, weight, 1e-6).values)


def test_rope(rng: np.random.Generator) -> None:
    q, k = draw(rng, 5, 4, 6), draw(rng, 5, 2, 6)
    cos, sin = (rng.standard_normal((9, 3)).astype(np.float32) for _ in range(2))
    positions = int32([8, 0, 3, 3, 1])
    for x, expected in zip((q, k), oracle.rope(q, k, cos, sin, positions), strict=True):
        want = np.empty(x.shape)
        for token, head, pair in np.ndindex(x.shape[0], x.shape[1], 3):
            c, s = float(cos[positions[token], pair]), float(sin[positions[token], pair])
            first, second = float(x[token, head, pair]), float(x[token, head, pair + 3])
            want[token, head, pair], want[token, head, pair + 3] = first * c - second * s, second * c + first * s
        assert np.allclose(expected.values, want, rtol=1e-14)


@pytest.mark.parametrize("scaling", [None, Llama3RopeScaling(8.0, 1.0, 4.0, 128), Llama3RopeScaling(32.0, 1, 4, 8192)])
def test_rope_tables(tiny: ReferenceModel, scaling: Llama3RopeScaling | None) -> None:
    config = replace(tiny.config, head_dim=64, rope_scaling=scaling)
    cos, sin = oracle.rope_tables(config, 40)
    assert cos.values.shape == sin.values.shape == (40, 32)
    for position, pair in ((0, 3), (1, 0), (39, 9), (39, 15), (17, 16), (39, 31)):
        angle = position * scaled_frequency(config, pair)
        assert np.allclose([cos.values[position, pair], sin.values[position, pair]], [math.cos(angle), math.sin(angle)])


def scaled_frequency(config: LlamaConfig, pair: int) -> float:
    """By the definition, in words: short wavelengths stay, long ones are stretched, the others are blended."""
    frequency = 1 / config.rope_theta ** (2 * pair / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return frequency
    original, wavelength = scaling.original_max_position_embeddings, 2 * math.pi / frequency
    if wavelength < original / scaling.high_freq_factor:
        return frequency
    if wavelength > original / scaling.low_freq_factor:
        return frequency / scaling.factor
    share = (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1 - share) * frequency / scaling.factor + share * frequency


def test_softmax() -> None:
    x = float32([[2000, 1999, -2000], [-np.inf, 5, -np.inf], [-np.inf] * 3, [0, 0, 0], [3e38, -3e38, 0]])
    want = [[1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0], [0, 1, 0], [0, 0, 0], [1 / 3] * 3, [1, 0, 0]]
    assert np.allclose(oracle.softmax(x).values, np.array(want, float), rtol=1e-14)
    assert oracle.softmax(np.zeros((2, 0), np.float32)).values.shape == (2, 0)


def test_matmul(rng: np.random.Generator) -> None:
    x, weight = draw(rng, 3, 5), draw(rng, 4, 5)
    want = [[inner(row, column) for column in weight] for row in x]
    expected, wide = oracle.matmul(x, weight), oracle.matmul(x, weight, np.float32)
    assert np.allclose(expected.values, want, rtol=1e-13)
    assert expected.dtype == BF16
    assert wide.dtype == np.float32
    assert accepts(expected, round_bf16(want))
    assert accepts(wide, float32(want))
    assert not accepts(wide, round_bf16(want))
    assert np.array_equal(oracle.matmul(x[:, :0], weight[:, :0]).values, np.zeros((3, 4)))


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (3, 8), (1, 5), (5, 2), (2, 0), (0, 3)])
def test_attention(rng: np.random.Generator, queries: int, keys: int) -> None:
    q, k, v = draw(rng, queries, 6, 8, scale=4), draw(rng, keys, 2, 8), draw(rng, keys, 2, 8)
    want = np.zeros(q.shape)
    for query, head in np.ndindex(queries, 6):
        seen = range(keys - queries + query + 1)
        kv_head = head // 3
        scores = [0.3 * inner(q[query, head], k[key, kv_head]) for key in seen]
        weights = [math.exp(score - max(scores)) for score in scores]
        for key, weight in zip(seen, weights, strict=True):
            want[query, head] += weight / sum(weights) * v[key, kv_head].astype(float)
    expected = oracle.attention(q, k, v, 0.3)
    assert np.allclose(expected.values, want, rtol=1e-6, atol=1e-7)  # scale is the float32 that a kernel gets
    assert accepts(expected, round_bf16(want))
    assert not want.size or not keys or not accepts(expected, want * 1.05)


def test_argmax_takes_the_lower_index() -> None:
    x = float32([[1, 3, 3, 2], [-1, -2, -1, -3], [-np.inf] * 4])
    assert np.array_equal(oracle.argmax(x).values, int32([1, 0, 0]))


# The model


def test_model_agrees_with_stored_references(tiny: ReferenceModel) -> None:
    lengths = [len(reference.ids) for reference in tiny.references]
    assert {1, 2, 17} <= set(lengths)
    assert max(lengths) > 256
    assert [fault for reference in tiny.references for fault in disagreements(tiny.oracle, reference)] == []


@pytest.mark.parametrize("scale", [1.01, 1.0001])
def test_changed_logit_is_noticed(tmp_path: Path, scale: float) -> None:
    folder = copy_of_tiny(tmp_path)
    path = folder / "expected" / "plain_text.safetensors"
    tensors = safetensors.numpy.load_file(path)
    logits = tensors["float32.logits"]
    logits[7, np.argmax(np.abs(logits[7]))] *= scale
    safetensors.numpy.save_file(tensors, path)
    expect_noticed(folder, "plain_text.safetensors", numeric=scale == 1.01)


@pytest.mark.parametrize("bit", [0, 6])
def test_flipped_weight_bit_is_noticed(tmp_path: Path, bit: int) -> None:
    """The lowest bit of a mantissa by the hash alone; the highest also by the values."""
    folder = copy_of_tiny(tmp_path)
    path = folder / "model" / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors["model.layers.2.mlp.down_proj.weight"].view(np.uint16)[100, 200] ^= 1 << bit
    safetensors.numpy.save_file(tensors, path)
    expect_noticed(folder, "model.safetensors", numeric=bit == 6)


def expect_noticed(folder: Path, name: str, numeric: bool) -> None:
    """The changed file is refused by its hash; with the hash corrected, its values give it away."""
    with pytest.raises(ReferenceFileError, match=f"{name} .*sha256"):
        load_references(folder)
    manifest_path = folder / "expected" / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    manifest["files"] = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in manifest["files"]}
    manifest_path.write_text(json.dumps(manifest))
    model = load_references(folder)
    if numeric:
        assert disagreements(model.oracle, model.reference("plain_text")) != []


def copy_of_tiny(folder: Path) -> Path:
    return Path(shutil.copytree(TINY, folder / "tiny"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model/model.safetensors", None, "cannot be read"),
        ("model/config.json", b"{", "sha256 differs"),
        ("expected/long_text.safetensors", b"", "sha256 differs"),
        ("expected/manifest.json", None, "cannot be read"),
        ("expected/manifest.json", b"[]", "not the manifest"),
        ("expected/manifest.json", b'{"files": {}, "prompts": [{"name": 1}]}', "not the manifest"),
    ],
)
def test_broken_reference_files(tmp_path: Path, file: str, content: bytes | None, message: str) -> None:
    folder = copy_of_tiny(tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(ReferenceFileError, match=f"{file}.*{message}"):
        load_references(folder)


def test_broken_model_folder(tmp_path: Path) -> None:
    shutil.copytree(TINY / "model", tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    whole = safetensors.numpy.load_file(weights)
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ReferenceFileError, match="not a whole safetensors file"):
        load_oracle(tmp_path)
    safetensors.numpy.save_file({**whole, "model.norm.weight": np.ones(7, BF16)}, weights)
    with pytest.raises(ReferenceFileError, match=r"model.norm.weight has shape \(7,\)"):
        load_oracle(tmp_path)
    del whole["model.norm.weight"]
    safetensors.numpy.save_file(whole, weights)
    with pytest.raises(ReferenceFileError, match=r"model.norm.weight is missing"):
        load_oracle(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ReferenceFileError, match=r"config.json: cannot be read"):
        load_oracle(tmp_path)


# Replaced operations


def test_kernels_in_the_model_get_bf16_and_pass(tiny: ReferenceModel) -> None:
    """Each operation, computed as a kernel must and rounded once, is within the tolerance of logits."""
    seen: dict[str, int] = {}

    def kernel(name: str, dtypes: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
            assert [array.dtype.name for array in arrays] == dtypes.split()
            seen[name] = seen.get(name, 0) + 1
            results = getattr(oracle, {"linear": "matmul"}.get(name, name))(*arguments)
            rounded = [r.values.astype(r.dtype) for r in (results if isinstance(results, tuple) else [results])]
            return tuple(rounded) if isinstance(results, tuple) else rounded[0]

        return call

    two, three = "bfloat16 bfloat16", "bfloat16 bfloat16 bfloat16"
    kernels = {"embedding": "bfloat16 int32", "rmsnorm": two, "linear": two, "softmax": "float32", "silu_mul": two}
    kernels |= {"attention": three, "residual_add": two, "rope": f"{two} float32 float32 int32"}
    reference = tiny.reference("seventeen_tokens")
    for name, dtypes in kernels.items():
        logits = tiny.oracle.forward(reference.ids, Replaced(**{name: kernel(name, dtypes)})).logits
        expect_rows(logits, reference.float32.logits, reference.bf16.logits)
    calls = {"embedding": 1, "rmsnorm": 9, "linear": 28, "softmax": 4, "silu_mul": 4, "attention": 4}
    assert seen == calls | {"residual_add": 8, "rope": 4}


def test_wrong_kernel_in_the_model_fails(tiny: ReferenceModel) -> None:
    reference = tiny.reference("seventeen_tokens")
    wrong = Replaced(rmsnorm=lambda x, weight, eps: oracle.rmsnorm(x, weight, eps).values * 1.05)
    with pytest.raises(Failure):
        expect_rows(tiny.oracle.forward(reference.ids, wrong).logits, reference.float32.logits, reference.bf16.logits)


def test_unknown_operation_is_refused() -> None:
    with pytest.raises(TypeError, match="'layernorm' is no operation"):
        Replaced(layernorm=lambda x: x)


# Variants


@pytest.mark.parametrize("seed", range(2))
def test_variant_model(tmp_path: Path, seed: int) -> None:
    model = write_variant(np.random.default_rng(seed), tmp_path)
    again = load_oracle(tmp_path)
    config = model.config
    assert config == again.config
    assert config.num_heads // config.num_kv_heads > 1
    assert config.rope_scaling is not None
    assert not np.array_equal(again.weights["lm_head.weight"], again.weights["model.embed_tokens.weight"])
    for reference in model.references:
        assert np.array_equal(again.forward(reference.ids).logits, reference.float32.logits)
        assert np.array_equal(again.forward(reference.ids, HUGGING_FACE_BF16).logits, reference.bf16.logits)
        assert not np.array_equal(reference.bf16.logits, reference.float32.logits)
    assert len(model.reference("long").ids) > 256


def test_variants_differ(tmp_path: Path) -> None:
    configs = {write_variant(np.random.default_rng(seed), tmp_path).config for seed in range(3)}
    assert len(configs) == 3


def test_mistakes_show_in_a_variant(tmp_path: Path) -> None:
    model = write_variant(np.random.default_rng(1), tmp_path)
    reference = model.reference("long")
    for change in ({"rope_theta": 500_000.0}, {"rope_scaling": None}):
        wrong = LlamaOracle(replace(model.config, **change), model.oracle.weights)
        with pytest.raises(Failure):
            expect_rows(wrong.forward(reference.ids).logits, reference.float32.logits, reference.bf16.logits)
