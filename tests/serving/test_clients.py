"""Clients that go away, and clients that are too many."""

import json
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from tests.serving.processes import Running, wait_until

LONG = {"max_tokens": 500, "ignore_eos": True}
"""An answer of 500 tokens, long after whose beginning everything here has happened."""


def steps(server: Running) -> int:
    count: int = server.health()["steps"]
    return count


def test_a_stream_that_is_closed_ends_its_request(scripted: Running) -> None:
    scripted.wait_until_idle()
    before = steps(scripted)
    stream = scripted.client.completions.create(model=scripted.model, prompt=[3], stream=True, extra_body=LONG)
    assert next(iter(stream)).choices[0].text
    assert scripted.health()["running"] == 1
    stream.close()
    scripted.wait_until_idle()
    assert steps(scripted) - before < 400


def test_a_client_that_hangs_up_ends_its_request(scripted: Running) -> None:
    """The answer isn't streamed, so that nothing is written before it is whole."""
    scripted.wait_until_idle()
    before = steps(scripted)
    address = urlsplit(scripted.url)
    body = json.dumps({"model": scripted.model, "prompt": [[3], [4]], **LONG})
    with socket.create_connection((address.hostname, address.port)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        wait_until(lambda: scripted.health()["running"] == 2)
    scripted.wait_until_idle()
    assert steps(scripted) - before < 400


def test_a_client_that_goes_in_the_middle_of_its_request(scripted: Running) -> None:
    address = urlsplit(scripted.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert scripted.client.completions.create(model=scripted.model, prompt=[3]).usage
    assert "Traceback" not in scripted.process.text


def test_too_many_requests(scripted: Running) -> None:
    """8 run and 12 wait; the next one is told to come back, and does when one of them has gone."""
    scripted.wait_until_idle()
    stream = scripted.client.completions.create(model=scripted.model, prompt=[[3]] * 20, stream=True, extra_body=LONG)
    wait_until(lambda: scripted.health()["running"] == 8)
    with pytest.raises(openai.RateLimitError, match="try again later") as refused:
        scripted.client.completions.create(model=scripted.model, prompt=[3])
    assert refused.value.response.headers["retry-after"] == "1"
    assert refused.value.code == "rate_limit_exceeded"
    assert scripted.health()["waiting"] == 12
    stream.close()
    answers: list[Any] = []

    def answered() -> bool:
        try:
            answers.append(scripted.client.completions.create(model=scripted.model, prompt=[3]))
        except openai.RateLimitError:
            return False
        return True

    wait_until(answered)
    assert answers[0].usage.completion_tokens == 16
    scripted.wait_until_idle()


def test_clients_of_all_kinds_at_once(scripted: Running) -> None:
    """Some read to the end, some go away: those who stay get all of their answers."""
    scripted.wait_until_idle()
    whole: list[int] = []

    def ask(number: int) -> None:
        stream = scripted.client.completions.create(
            model=scripted.model,
            prompt=[number],
            max_tokens=40,
            stream=True,
            extra_body={"ignore_eos": True, "return_token_ids": True},
        )
        if number % 3 == 0:
            next(iter(stream))
            stream.close()
        else:
            whole.append(sum(len((chunk.choices[0].model_extra or {})["token_ids"]) for chunk in stream))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert whole == [40] * 10
    scripted.wait_until_idle()
