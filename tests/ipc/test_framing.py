"""Frames arrive as they were sent, and what is no frame costs neither memory nor time."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from grader.ipc.framing import FrameReader, ProtocolError, encode_header, pack_frame, receive_frame, send_frame

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 5_000_000])
def test_round_trip(pair: Pair, size: int) -> None:
    header = {"verb": "call", "text": "größe ✓", "nested": [1, 2.5, None, {"a": True}]}
    payload = bytes(range(256)) * (size // 256 + 1)
    sender = threading.Thread(target=send_frame, args=(pair[0], header, memoryview(payload)[:size]))
    sender.start()
    assert receive_frame(pair[1], 1000, size) == (header, payload[:size])
    sender.join()


def test_a_packed_frame_is_a_frame(pair: Pair) -> None:
    pair[0].sendall(pack_frame(encode_header({"n": 1}), b"ab") + pack_frame(b"{}"))
    assert receive_frame(pair[1], 100, 100) == ({"n": 1}, b"ab")
    assert receive_frame(pair[1], 100, 0) == ({}, b"")


@pytest.mark.parametrize("read_ahead", [0, 1, 16, 1 << 16])
def test_a_reader_returns_frames_in_order_wherever_they_are_cut(pair: Pair, read_ahead: int) -> None:
    frames = [(b'{"n":%d}' % n, bytes([n]) * (n * n)) for n in range(100)]
    stream = b"".join(pack_frame(*frame) for frame in frames)

    def send_pieces() -> None:
        for begin in range(0, len(stream), 7):
            pair[0].sendall(stream[begin : begin + 7])

    sender = threading.Thread(target=send_pieces)
    sender.start()
    reader = FrameReader(pair[1], 100, 10_000, read_ahead=read_ahead)
    assert [reader.next() for _ in frames] == frames
    assert not reader.has_more()
    sender.join()


def test_a_reader_takes_what_has_arrived_with_one_call(pair: Pair) -> None:
    reader = FrameReader(pair[1], 100, 10, read_ahead=1000)
    pair[0].sendall(pack_frame(b"{}", b"ab") * 3)
    assert reader.next() == (b"{}", b"ab")
    pair[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        pair[1].recv(1)
    assert reader.has_more()
    assert [reader.next(), reader.next()] == [(b"{}", b"ab")] * 2
    assert not reader.has_more()


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (struct.pack("<IQ", 101, 0), "a header of 101 bytes, at most 100"),
        (struct.pack("<IQ", 2, 1 << 60), "a payload of 1152921504606846976 bytes, at most 10"),
        (struct.pack("<IQ", 2, 0) + b"[]", "not a JSON object"),
        (struct.pack("<IQ", 3, 0) + b"{x}", "not a JSON object"),
        (struct.pack("<IQ", 2, 0) + b"\xff\xfe", "not a JSON object"),
        (struct.pack("<IQ", 100, 0) + b"[" * 100, "not a JSON object"),
    ],
)
def test_what_is_no_frame(pair: Pair, sent: bytes, says: str) -> None:
    pair[0].sendall(sent)
    with pytest.raises(ProtocolError, match=says):
        receive_frame(pair[1], 100, 10)


def test_deep_nesting_is_no_crash(pair: Pair) -> None:
    pair[0].sendall(pack_frame(b"[" * 100_000))
    with pytest.raises(ProtocolError):
        receive_frame(pair[1], 1 << 20, 0)


def test_peer_that_goes_in_the_middle(pair: Pair) -> None:
    pair[0].sendall(pack_frame(b"{}", b"abc")[:-1])
    pair[0].close()
    with pytest.raises(EOFError):
        receive_frame(pair[1], 100, 100)


def test_deadlines_hold_for_slow_and_for_silent_peers(pair: Pair) -> None:
    pair[0].sendall(pack_frame(b"{}", b"abc")[:-1])
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        receive_frame(pair[1], 100, 100, start + 0.1)
    with pytest.raises(TimeoutError):
        send_frame(pair[1], {}, bytes(50 << 20), time.monotonic() + 0.1)  # nobody reads
    with pytest.raises(TimeoutError):
        receive_frame(pair[1], 100, 100, start)
    assert 0.2 <= time.monotonic() - start < 5


def test_a_deadline_ends_with_its_call(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        receive_frame(pair[1], 100, 0, time.monotonic() + 0.01)
    threading.Timer(0.05, send_frame, (pair[0], {"late": 1})).start()
    assert receive_frame(pair[1], 100, 0)[0] == {"late": 1}
