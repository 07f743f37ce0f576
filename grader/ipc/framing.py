"""Frames over a stream socket: what the grader, its workers and the emulator's device process say to one another.

A frame is the header's length (u32), the payload's length (u64), both little-endian, then the header (a JSON object,
UTF-8), then the payload (raw bytes). Receivers state the largest lengths that they accept, so a peer that answers
nonsense costs neither memory nor a crash. Deadlines are readings of time.monotonic(); None waits without limit.
"""

import json
import socket
import struct
import time
from typing import Any

LENGTHS = struct.Struct("<IQ")
JOINED_BYTES = 1 << 16  # payloads up to this size travel in the same system call as their header

Buffer = bytes | bytearray | memoryview


class ProtocolError(Exception):
    """The peer sent something that is not a frame, or a longer one than the receiver accepts."""


def pack_frame(header: bytes, payload: Buffer = b"") -> bytes:
    """A whole frame from an encoded header, for senders that use one header many times."""
    return b"".join((LENGTHS.pack(len(header), len(payload)), header, payload))


def encode_header(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def send_frame(
    sock: socket.socket, header: dict[str, Any], payload: Buffer = b"", deadline: float | None = None
) -> None:
    """Send one frame; `payload` is any contiguous buffer. Raises TimeoutError or, when the peer is gone, OSError."""
    encoded = encode_header(header)
    view = memoryview(payload)
    body = view.cast("B") if view.nbytes else b""
    _limit(sock, deadline)
    if len(body) <= JOINED_BYTES:
        sock.sendall(pack_frame(encoded, body))
        return
    sock.sendall(LENGTHS.pack(len(encoded), len(body)) + encoded)
    _limit(sock, deadline)
    sock.sendall(body)


def receive_frame(
    sock: socket.socket, max_header: int, max_payload: int, deadline: float | None = None
) -> tuple[dict[str, Any], bytes | bytearray]:
    """Receive one frame, its header decoded, and not a byte that follows it.

    Raises ProtocolError for anything else than a frame whose parts are at most `max_header` and `max_payload` bytes
    long, EOFError when the peer is gone, TimeoutError.
    """
    encoded, payload = FrameReader(sock, max_header, max_payload).next(deadline)
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ProtocolError("a header that is not a JSON object")
    return header, payload


class FrameReader:
    """Reads the frames of one socket, with `read_ahead` bytes as many as have arrived with one system call."""

    def __init__(self, sock: socket.socket, max_header: int, max_payload: int, *, read_ahead: int = 0) -> None:
        self._socket = sock
        self._max_header = max_header
        self._max_payload = max_payload
        self._read_ahead = read_ahead
        self._buffer = b""
        self._position = 0

    def has_more(self) -> bool:
        """Whether a frame, or its begin, was read already."""
        return self._position < len(self._buffer)

    def next(self, deadline: float | None = None) -> tuple[bytes, bytes | bytearray]:
        """Encoded header and payload of the next frame; waits for it. Raises as `receive_frame`."""
        try:
            return self._next(deadline)
        except ConnectionResetError:
            raise EOFError("the peer is gone") from None

    def _next(self, deadline: float | None) -> tuple[bytes, bytes | bytearray]:
        if self._position + LENGTHS.size > len(self._buffer):
            self._fill(LENGTHS.size, deadline)
        header_length, payload_length = LENGTHS.unpack_from(self._buffer, self._position)
        if header_length > self._max_header:
            raise ProtocolError(f"a header of {header_length} bytes, at most {self._max_header} are accepted")
        if payload_length > self._max_payload:
            raise ProtocolError(f"a payload of {payload_length} bytes, at most {self._max_payload} are accepted")
        if self._position + LENGTHS.size + header_length > len(self._buffer):
            self._fill(LENGTHS.size + header_length, deadline)
        begin = self._position + LENGTHS.size
        middle = begin + header_length
        header = self._buffer[begin:middle]
        self._position = middle + payload_length
        if self._position <= len(self._buffer):
            return header, self._buffer[middle : self._position]
        return header, self._receive_rest(self._buffer[middle:], payload_length, deadline)

    def _fill(self, count: int, deadline: float | None) -> None:
        """Let the buffer begin with the next `count` bytes."""
        chunks = [self._buffer[self._position :]]
        missing = count - len(chunks[0])
        while missing > 0:
            _limit(self._socket, deadline)
            chunk = self._socket.recv(max(missing, self._read_ahead))
            if not chunk:
                raise EOFError("the peer is gone")
            chunks.append(chunk)
            missing -= len(chunk)
        self._buffer, self._position = b"".join(chunks), 0

    def _receive_rest(self, first: bytes, length: int, deadline: float | None) -> bytearray:
        """A payload of which only the first bytes are in the buffer, its last: what is large is received in place."""
        self._buffer, self._position = b"", 0
        payload = bytearray(length)
        payload[: len(first)] = first
        missing = memoryview(payload)[len(first) :]
        while missing:
            _limit(self._socket, deadline)
            count = self._socket.recv_into(missing)
            if not count:
                raise EOFError("the peer is gone")
            missing = missing[count:]
        return payload


def _limit(sock: socket.socket, deadline: float | None) -> None:
    """Let the next operation on the socket take until the deadline."""
    if deadline is None:
        if sock.gettimeout() is not None:
            sock.settimeout(None)
        return
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("the deadline passed")
    sock.settimeout(remaining)
