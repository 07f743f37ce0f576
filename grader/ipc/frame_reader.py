"""The frames that a client sends to the device, read many at a time."""

import socket

from grader.ipc.framing import LENGTHS, ProtocolError

MAX_HEADER = 4 << 20
MAX_PAYLOAD = 1 << 20


class Requests:
    """Reads a client's frames, as many as have arrived with one system call."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._buffer = b""
        self._position = 0

    def has_more(self) -> bool:
        """Whether a frame, or its begin, was read already."""
        return self._position < len(self._buffer)

    def next(self) -> tuple[bytes, bytes]:
        """Header and payload of the next frame; waits for it. Raises EOFError when the client is gone."""
        end = LENGTHS.size
        while True:
            if len(self._buffer) - self._position >= end:
                header_length, payload_length = LENGTHS.unpack_from(self._buffer, self._position)
                if header_length > MAX_HEADER or payload_length > MAX_PAYLOAD:
                    raise ProtocolError(f"a frame of {header_length} and {payload_length} bytes")
                end = LENGTHS.size + header_length + payload_length
                if len(self._buffer) - self._position >= end:
                    break
            chunk = self._client.recv(1 << 16)
            if not chunk:
                raise EOFError("the client is gone")
            self._buffer = self._buffer[self._position :] + chunk
            self._position = 0
        begin = self._position + LENGTHS.size
        self._position += end
        return self._buffer[begin : begin + header_length], self._buffer[begin + header_length : self._position]
