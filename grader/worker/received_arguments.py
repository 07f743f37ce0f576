"""The worker's side of a call's arguments: rebuilt before the call, read back after it."""

from typing import TYPE_CHECKING, Any

import numpy as np
from given.config import Llama3RopeScaling, LlamaConfig
from given.requests import SamplingParams
from numpy.typing import NDArray
from pycuda.gpuarray import GPUArray

from grader.worker.codec import RED_ZONE, Node, array_at, byte_size, decode

if TYPE_CHECKING:
    from grader.worker.submission_process import Submission


class ReceivedArguments:
    """Decodes the arguments of a request, device arrays on the device, and reads all arrays back after the call."""

    def __init__(self, submission: "Submission", payload: memoryview) -> None:
        self._submission = submission
        self._payload = payload
        self._host: list[tuple[int, NDArray[Any]]] = []
        self._device: list[tuple[int, int, int]] = []
        """What was copied to the device: begin and end in the payload, address."""
        self._outputs: list[tuple[int, int, int]] = []
        """As much of that as a launch writes."""
        self._allocations: list[Any] = []
        self.sparse: list[int] = []
        """Addresses of the sparse arrays, in order."""

    def decode(self, node: Node) -> Any:
        return decode(node, self._decode_leaf)

    def read_back(self) -> bytes:
        """The request's payload as it is after the call."""
        after = bytearray(self._payload)
        for offset, array in self._host:
            after[offset : offset + array.nbytes] = array.tobytes()
        for begin, end, address in self._device:
            self._submission.driver.memcpy_dtoh(memoryview(after)[begin:end], address)
        self._submission.kept = self._allocations
        return bytes(after)

    def restore_outputs(self) -> None:
        """Copy the arrays that a launch writes to the device again, as they were sent."""
        for begin, end, address in self._outputs:
            self._submission.driver.memcpy_htod(address, self._payload[begin:end])

    def _decode_leaf(self, kind: str, content: Any) -> Any:
        match kind:
            case "handle":
                return self._submission.objects[content[0]]
            case "config":
                return _config(content)
            case "sampling":
                return SamplingParams(**{name: self.decode(field) for name, field in content.items()})
            case "array":
                return self._host_array(*content)
            case "device":
                return self._device_array(*content)
            case "sparse":
                return self._sparse_array(*content)
        raise ValueError(f"an argument of unknown kind {kind!r}")

    def _host_array(self, dtype: str, shape: list[int], offset: int) -> NDArray[Any]:
        array = array_at(self._payload, dtype, shape, offset).copy()
        self._host.append((offset, array))
        return array

    def _device_array(self, dtype: str, shape: list[int], offset: int, role: str) -> GPUArray:
        size = byte_size(dtype, shape)
        address = self._allocate(size)
        self._upload(offset, size + 2 * RED_ZONE, address - RED_ZONE)
        if role != "in":
            self._outputs.append(self._device[-1])
        self._submission.describe_array(address, size, role != "out")
        return self._array_on_device(dtype, shape, address)

    def _sparse_array(self, dtype: str, shape: list[int], offset: int, rows: list[int]) -> GPUArray:
        """A device array of zeros, but for some rows and the red zones, which follow one another in the payload."""
        size, row = byte_size(dtype, shape), byte_size(dtype, shape[1:])
        address = self._allocate(size)
        self._submission.driver.memset_d8(address - RED_ZONE, 0, size + 2 * RED_ZONE)
        in_between = [(row, address + number * row) for number in rows]
        pieces = [(RED_ZONE, address - RED_ZONE), *in_between, (RED_ZONE, address + size)]
        for length, target in pieces:
            self._upload(offset, length, target)
            offset += length
        self.sparse.append(address)
        self._submission.describe_array(address, size, True)
        return self._array_on_device(dtype, shape, address)

    def _allocate(self, size: int) -> int:
        """Allocate an array between its red zones; returns the array's address."""
        self._allocations.append(self._submission.driver.mem_alloc(size + 2 * RED_ZONE))
        return int(self._allocations[-1]) + RED_ZONE

    def _upload(self, offset: int, size: int, address: int) -> None:
        """Copy a part of the payload, which `read_back` copies back."""
        self._submission.driver.memcpy_htod(address, self._payload[offset : offset + size])
        self._device.append((offset, offset + size, address))

    def _array_on_device(self, dtype: str, shape: list[int], address: int) -> GPUArray:
        return GPUArray(tuple(shape), np.dtype(dtype), base=self._allocations[-1], gpudata=address)


def _config(fields: dict[str, Any]) -> LlamaConfig:
    scaling = fields["rope_scaling"]
    fields["rope_scaling"] = scaling and Llama3RopeScaling(**scaling)
    return LlamaConfig(**{**fields, "eos_token_ids": tuple(fields["eos_token_ids"])})
