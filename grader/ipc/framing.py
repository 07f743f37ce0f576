"""Frames over a stream socket: what the grader, its workers and the emulator's device process say to one another.

A frame is the header's length (u32), the payload's length (u64), both little-endian, then the header (a JSON object,
UTF-8), then the payload (raw bytes). Whoever receives states the largest lengths it accepts, so a peer that answers
nonsense costs neither memory nor a crash. Deadlines are readings of time.monotonic(); None waits for ever.
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
    """The peer sent something that is no frame, or a longer one than the receiver accepts."""


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
) -> tuple[dict[str, Any], bytearray]:
    """Receive one frame whose parts are at most `max_header` and `max_payload` bytes long.

    Raises ProtocolError for anything else than such a frame, EOFError when the peer is gone, TimeoutError.
    """
    header_length, payload_length = LENGTHS.unpack(_receive(sock, LENGTHS.size, deadline))
    if header_length > max_header:
        raise ProtocolError(f"a header of {header_length} bytes, at most {max_header} are accepted")
    if payload_length > max_payload:
        raise ProtocolError(f"a payload of {payload_length} bytes, at most {max_payload} are accepted")
    encoded = _receive(sock, header_length, deadline)
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ProtocolError("a header that is no JSON object")
    return header, _receive(sock, payload_length, deadline)


def _receive(sock: socket.socket, length: int, deadline: float | None) -> bytearray:
    buffer = bytearray(length)
    rest = memoryview(buffer)
    while rest:
        _limit(sock, deadline)
        try:
            count = sock.recv_into(rest)
        except ConnectionResetError:
            count = 0
        if count == 0:
            raise EOFError("the peer is gone")
        rest = rest[count:]
    return buffer


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
