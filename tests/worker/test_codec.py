"""Values survive the wire; what a worker makes up does not."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from grader.worker.arguments import Handle
from grader.worker.codec import Node, Parts, Path, array_at, array_content, decode, encode
from grader.worker.strict_decoder import MAX_DEPTH, MalformedAnswer, StrictDecoder


def encoded(value: Any) -> tuple[Any, memoryview]:
    """The tree as it arrives, and the payload."""
    parts = Parts()

    def encode_array(array: Any, path: Path) -> Node:
        return {"array": array_content(array, parts.append(array.tobytes()))}

    return json.loads(json.dumps(encode(value, encode_array))), memoryview(b"".join(parts.pieces))


def strictly(tree: Any, payload: memoryview | bytes = b"") -> Any:
    return StrictDecoder(memoryview(payload), Handle).decode(tree)


@pytest.mark.parametrize("value", [None, True, -3, 2.5, "é", [], (1, [2, (3,)]), {"a": {"b": [None]}}])
def test_both_decoders_return_what_was_encoded(value: Any) -> None:
    tree, payload = encoded(value)
    assert decode(tree, pytest.fail) == value
    assert strictly(tree, payload) == value


def test_whole_numbers_are_keys_of_arguments_and_texts_of_results() -> None:
    tree, payload = encoded({3: 1, None: 2})
    assert decode(tree, pytest.fail) == {3: 1, "None": 2}
    assert strictly(tree, payload) == {"3": 1, "None": 2}


def test_arrays_share_one_payload() -> None:
    arrays = [np.arange(6).reshape(2, 3), np.zeros((0, 4)), np.array([1, 2], ml_dtypes.bfloat16), np.array(7, np.uint8)]
    tree, payload = encoded(arrays)
    for got in decode(tree, lambda kind, content: array_at(payload, *content)), strictly(tree, payload):
        assert [(a.dtype, a.shape, a.tolist()) for a in got] == [(a.dtype, a.shape, a.tolist()) for a in arrays]


def test_paths_lead_to_what_is_neither_plain_nor_a_container() -> None:
    paths = []

    def note(value: Any, path: Path) -> Node:
        paths.append(path)
        return {}

    encode({"a": [1, object()], "b": (object(),)}, note, ("x",))
    assert paths == [("x", "a", 1), ("x", "b", 0)]


def test_one_array_in_two_places_is_one_array() -> None:
    node = {"array": ["int8", [2], 0]}
    first, second = strictly({"list": [node, node]}, b"ab")
    assert first is second


def nested(depth: int) -> Any:
    return {"list": [nested(depth - 1)]} if depth else {"value": 0}


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        {"value": 1, "list": []},
        {"value": []},
        {"value": {"value": 1}},
        {"list": {}},
        {"list": [1]},
        {"tuple": "ab"},
        {"dict": [["a"]]},
        {"dict": [["a", {"value": 1}, 2]]},
        {"dict": [[None, {"value": 1}]]},
        {"dict": [[[], {"value": 1}]]},
        {"handle": 3},
        {"handle": ["3", "C"]},
        {"handle": [3, 4]},
        {"device": ["int8", [1], 0, True]},
        {"config": {}},
        {"array": None},
        {"array": ["int8", [4]]},
        {"array": ["int8", [4], 0, 0]},
        {"array": ["int8", 4, 0]},
        {"array": ["int8", [5], 0]},
        {"array": ["int8", [-4], 0]},
        {"array": ["int8", [2.0], 0]},
        {"array": ["int8", ["4"], 0]},
        {"array": ["int8", [1], 1]},
        {"array": ["int8", [1], -1]},
        {"array": ["int8", [1 << 62, 1 << 62], 0]},
        {"array": ["int8", [1 << 62, 1 << 62, 0], 0]},
        {"array": ["int8", [1 << 70, 0], 0]},
        {"array": ["int8", [1] * 33, 0]},
        {"array": ["int8", [[1]], 0]},
        {"array": ["object", [0], 0]},
        {"array": ["S4", [1], 0]},
        {"array": [["int8"], [1], 0]},
        {"scalar": ["O", [], 0]},
        {"list": [{"array": ["int8", [3], 0]}, {"array": ["int8", [2], 3]}]},
        nested(MAX_DEPTH + 1),
    ],
    ids=repr,
)
def test_what_no_worker_sends_is_malformed(tree: Any) -> None:
    with pytest.raises(MalformedAnswer):
        strictly(tree, b"abcd")


def test_arrays_that_overlap_are_malformed() -> None:
    """Many views of few bytes would take more memory here than was received."""
    tree = {"list": [{"array": ["int8", [4], 0]}, {"array": ["uint8", [4], 0]}]}
    with pytest.raises(MalformedAnswer):
        strictly(tree, b"abcdefgh")


def test_the_deepest_result_is_no_deeper_than_stated() -> None:
    assert strictly(nested(MAX_DEPTH))
