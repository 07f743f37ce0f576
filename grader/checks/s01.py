"""Stage 1: bf16 numbers and safetensors files."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader.checking.api import (
    BF16,
    Expected,
    Failure,
    Handle,
    StudentError,
    Worker,
    as_sentence,
    check,
    expect,
    expect_error,
    property_check,
    require,
)
from grader.checking.draws import Array
from grader.checks.support import s01 as files

FILE = "model.safetensors"
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
Texts = dict[str, str] | None


def expect_refused(worker: Worker, folder: Path, fault: str, content: bytes, *mentions: str) -> None:
    """Raise Failure, with the file's fault in words, unless the file is refused."""
    path = folder / f"{len(list(folder.iterdir()))}.safetensors"  # an error that names the file names no tensor by it
    path.write_bytes(content)
    try:
        expect_error(partial(worker.call, "weights.load_safetensors", str(path)), "SafetensorsError", *mentions)
    except Failure as failure:
        failure.message += f" The file: {fault}."
        raise


@check("s01.1")
def conversions(worker: Worker) -> None:
    """bf16 becomes float32 exactly, float32 becomes the nearest bf16: ties to even, NaN stays NaN."""
    patterns = np.arange(65536, dtype=np.uint32)
    got = worker.call("weights.bf16_to_float32", patterns.astype(np.uint16))
    files.expect_bits("bf16_to_float32", patterns.astype(np.uint16), got, patterns << 16)
    between = ((patterns[:, None] << 16) | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).view(np.float32)
    numbers = between[~np.isnan(between)]
    bits = worker.call("weights.float32_to_bf16", numbers)
    files.expect_bits("float32_to_bf16", numbers.view(np.uint32), bits, numbers.astype(BF16).view(np.uint16))
    not_numbers = between[np.isnan(between)]
    bits = worker.call("weights.float32_to_bf16", not_numbers)
    if not isinstance(bits, np.ndarray) or (bits.shape, bits.dtype) != (not_numbers.shape, np.uint16):
        expect(bits, Expected(not_numbers.astype(BF16).view(np.uint16), 0, np.uint16), "bits")
    for i in np.flatnonzero((bits & 0x7FFF) <= 0x7F80)[:1]:
        pattern, found = not_numbers.view(np.uint32)[i], "infinity" if bits[i] & 0x7FFF == 0x7F80 else "a number"
        told = f"float32_to_bf16 of the NaN 0x{pattern:08X} returned 0x{bits[i]:04X}, which is {found}"
        require(False, f"{told}; it must stay a NaN, with a bit set among the lowest 7.")


@check("s01.2")
def dtypes_and_shapes(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """load_safetensors returns tensors of every dtype, also scalars, empty ones and those of four dimensions."""
    tensors = {f"weights.{dtype}": files.tensor(rng, dtype, 3, 5) for dtype in files.DTYPES}
    shapes = {"scalar": (), "empty": (0,), "hollow": (4, 0, 2), "single": (1, 1), "deep": (2, 1, 3, 2)}
    tensors |= {name: files.tensor(rng, "BF16", *shape) for name, shape in shapes.items()}
    path = files.write_tensors(shared_folder / FILE, tensors)
    files.expect_tensors(worker.call("weights.load_safetensors", str(path)), tensors, path)
    empty = files.write_tensors(shared_folder / "empty.safetensors", {})
    files.expect_tensors(worker.call("weights.load_safetensors", str(empty)), {})


@check("s01.3")
def head(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """load_model_weights gives a head of its own where there is one, and the embedding where the head is tied."""
    tensors = {EMBEDDING: files.tensor(rng, "BF16", 12, 8), NORM: files.tensor(rng, "BF16", 8)}
    with_head = {**tensors, HEAD: files.tensor(rng, "BF16", 12, 8)}
    contents = {"tied": tensors, "tied with a head": with_head, "untied": with_head, "headless": tensors}
    loads = {}
    for name, content in contents.items():
        folder = files.model_folder(shared_folder / name, tied=name.startswith("tied"))
        files.write_tensors(folder / FILE, content)
        loads[name] = partial(worker.call, "weights.load_model_weights", str(folder))
    for name in ("tied", "tied with a head"):
        expect_tied(loads[name](), tensors, with_head[HEAD])
    missing = "config.json says that the head is not tied, so it is in the file"
    expect_own_head(loads["untied"](), tensors[EMBEDDING])
    files.expect_tensors(loads["untied"](), with_head, shared_folder / "untied" / FILE, missing=missing)
    because = f"config.json says that the head is not tied, and the folder has no {HEAD}"
    expect_error(loads["headless"], "SafetensorsError", HEAD, because=because)


def expect_own_head(weights: Any, embedding: Array) -> None:
    if isinstance(weights, dict) and np.array_equal(weights.get(HEAD, ()), embedding):
        told = f"{HEAD} is the embedding, though config.json says that the head is not tied"
        require(False, f"{told}: it is the file's own tensor of that name.")


def expect_tied(weights: Any, tensors: dict[str, Array], own: Array) -> None:
    """The head is the embedding, whether or not the file has a head of its `own`."""
    missing = isinstance(weights, dict) and HEAD not in weights
    require(not missing, f"{HEAD} is missing: with a tied head it is the embedding's array.")
    if isinstance(weights, dict) and np.array_equal(weights[HEAD], own):
        told = "where config.json says that the head is tied it is the embedding's array"
        require(False, f"{HEAD} is the file's own; {told}, whatever the file has under that name.")
    files.expect_tensors(weights, {**tensors, HEAD: tensors[EMBEDDING]})
    require(weights[HEAD] is weights[EMBEDDING], f"{HEAD} is a copy: a tied head is the embedding's array itself.")


@check("s01.4")
@property_check(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=6),
    padding=st.integers(0, 9),
    metadata=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
def layouts(
    worker: Worker, rng: Generator, shared_folder: Path, shapes: list[list[int]], padding: int, metadata: Texts
) -> None:
    """load_safetensors finds tensors in a header of any order, with metadata and padding."""
    dtypes = rng.choice(list(files.DTYPES), len(shapes)).tolist()
    tensors = {f"tensor.{i}": files.tensor(rng, dtypes[i], *shape) for i, shape in enumerate(shapes)}
    listed = rng.permutation(list(tensors)).tolist()
    path = shared_folder / f"example-{len(list(shared_folder.iterdir()))}"  # earlier ones may still be mapped
    files.write_tensors(path, tensors, listed, metadata, padding)
    order = "" if listed == list(tensors) else f", whose header lists its tensors in another order, {listed}"
    try:
        got = worker.call("weights.load_safetensors", str(path))
    except StudentError as error:
        if "SafetensorsError" in error.type_names:
            error.message = f"{as_sentence(error.message)} The file is well formed{order}."
        raise
    files.expect_tensors(got, tensors, path)


@check("s01.5")
def malformed_headers(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """load_safetensors raises SafetensorsError for a truncated file, a header past its end, bad or doubled JSON."""
    for name, content in files.malformed_headers(rng).items():
        expect_refused(worker, shared_folder, name, content)
    expect_refused(worker, shared_folder, "'weight' is in the header twice", files.doubled_name("weight"), "weight")


@check("s01.6")
def malformed_tensors(worker: Worker, shared_folder: Path) -> None:
    """load_safetensors raises SafetensorsError, naming the tensor, when dtype, shape and bytes do not fit."""
    for name, content in files.malformed_tensors("block.0", "block.1").items():
        expect_refused(worker, shared_folder, name, content, "block.0", "block.1")


@check("s01.7")
def nothing_copied(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """load_safetensors maps a file of 256 MB and finds its last tensor without reading the file into memory."""
    size, last = 256 << 20, files.tensor(rng, "BF16", 5)
    header = {"large": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    header["last"] = {"dtype": "BF16", "shape": [5], "data_offsets": [size, size + 10]}
    path, start = shared_folder / FILE, files.file_bytes(header, b"")
    with open(path, "wb") as file:
        file.write(start)
        file.seek(len(start) + size)  # the hole before it takes no space on the disk
        file.write(last.tobytes())
    worker.call("weights.load_safetensors", str(files.write_tensors(shared_folder / "small", {"last": last})))
    before = worker.host_memory()
    tensors = worker.call("weights.load_safetensors", str(path), keep=True)
    megabytes = (worker.host_memory() - before) >> 20
    require(
        megabytes <= 64,
        f"Loading took {megabytes} MB of memory for a file of 256 MB: map the file and return views of it.",
        "OUT_OF_MEMORY",
        figure=megabytes,
        threshold=64,
    )
    expect(worker.call(tensors.method("__getitem__"), "last"), Expected(last, 0, BF16), "last")
    expect_mapped(worker, rng, tensors, path, len(start), size)


def expect_mapped(worker: Worker, rng: Generator, tensors: Handle, path: Path, start: int, size: int) -> None:
    """Write to the file: where a tensor is a view of the mapped file, its elements change."""
    large = worker.call(tensors.method("__getitem__"), "large", keep=True)
    for index in (0, int(rng.integers(1, size - 1)), size - 1):
        value = int(rng.integers(1, 256))
        with open(path, "r+b") as file:
            file.seek(start + index)
            file.write(bytes([value]))
        told = f"Byte {start + index} of the file became {value} after the call, and large[{index}] did not"
        advice = "return views of the mapped file: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.frombuffer"
        require(worker.call(large.method("__getitem__"), index) == value, f"{told}: the tensor is a copy; {advice}.")


@check("s01.8")
def shards(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """load_model_weights gathers the tensors of a model in several files, and names what is missing."""
    parts: list[dict[str, Array]] = [
        {EMBEDDING: files.tensor(rng, "BF16", 12, 8), "unlisted": files.tensor(rng, "F32", 2)},
        {NORM: files.tensor(rng, "F32", 8), HEAD: files.tensor(rng, "BF16", 12, 8)},
    ]
    listed = {name: array for part in parts for name, array in part.items() if name != "unlisted"}
    folder = files.model_folder(shared_folder / "whole", tied=False)
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for file, part in zip(names, parts, strict=True):
        files.write_tensors(folder / file, part)
    places = {name: names[name not in parts[0]] for name in listed}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    call = partial(worker.call, "weights.load_model_weights", str(folder))
    missing, unknown = (
        "weight_map names it, and the file there holds it",
        "a shard holds it, but weight_map does not name it",
    )
    expect_gathered = partial(files.expect_tensors, missing=missing, unknown=unknown)
    expect_gathered(call(), listed, *(folder / name for name in names))
    files.write_tensors(folder / FILE, {"stale": files.tensor(rng, "F32", 2), **listed})
    expect_gathered(call(), listed, unknown=f"{FILE} holds it, but {index.name} is there, and it says what to load")
    index.write_text(json.dumps({"weight_map": {**places, "model.absent": names[0]}}))
    because = f"weight_map places 'model.absent' in {names[0]}, which does not hold it"
    expect_error(call, "SafetensorsError", "model.absent", because=because)
    (folder / names[1]).unlink()
    expect_error(call, "SafetensorsError", names[1], because=f"weight_map names {names[1]}, which is not in the folder")
    empty = files.model_folder(shared_folder / "empty", tied=False)
    because = f"the folder has neither {FILE} nor {index.name}"
    expect_error(partial(worker.call, "weights.load_model_weights", str(empty)), "SafetensorsError", because=because)
