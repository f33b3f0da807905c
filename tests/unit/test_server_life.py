"""A server under load, in trouble, at its start and at its end, over a scripted engine."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from scripted_engine import expected_text, scripted_engine
from server_thread import ServerThread
from tokenmill.engine.engine import Engine
from tokenmill.scheduling.batch_plan import SequenceStep
from tokenmill.server.serve import Server
from tokenmill.server.state import ServerSettings
from tokenmill.vocabulary.errors import ModelFileError, TokenmillError
from tokenmill.weights.progress import Progress

LONG = {"prompt": "abc", "max_tokens": 900, "ignore_eos": True, "seed": 1}


def ask(server: ServerThread, body: object = None, timeout: float = 30) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", json=body or LONG, timeout=timeout)


def wait_for(what: object, timeout: float = 5) -> None:
    deadline = time.monotonic() + timeout
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def open_stream(server: ServerThread, body: object) -> socket.socket:
    """A connection that has sent a request and reads nothing."""
    data = json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # soon full
    connection.connect(("127.0.0.1", server.server.port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def test_alive_while_loading_and_ready_after() -> None:
    go = threading.Event()

    def load(progress: Progress) -> Engine:
        progress.stage("weights", 100)
        progress.advance(40)
        go.wait()
        return scripted_engine()

    with ServerThread(load) as server:
        wait_for(lambda: httpx.get(f"{server.url}/ready").json().get("progress") == 0.4)
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert httpx.get(f"{server.url}/ready").status_code == 503
        assert httpx.get(f"{server.url}/metrics").status_code == 200
        refused = ask(server)
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the server is loading")
        assert int(refused.headers["retry-after"]) > 0
        go.set()
        server.wait_ready()
        assert ask(server, {"prompt": "abc", "max_tokens": 1}).status_code == 200


def test_a_stop_ends_a_load() -> None:
    ended = threading.Event()

    def load(progress: Progress) -> Engine:
        progress.stage("weights", 100)
        try:
            while True:
                progress.advance(0)
                time.sleep(0.01)
        finally:
            ended.set()

    with ServerThread(load) as server:
        wait_for(lambda: httpx.get(f"{server.url}/health").status_code == 200)
        server.server.stop()
        server.join()
    assert ended.wait(5)
    assert server.error is None


def test_a_failed_load_ends_the_server_with_its_error() -> None:
    def load(progress: Progress) -> Engine:
        raise ModelFileError("the file is truncated", where="model.gguf")

    with ServerThread(load) as server:
        server.join()
    assert isinstance(server.error, ModelFileError)


def test_a_port_in_use_is_refused_clearly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(TokenmillError, match="cannot listen"):
        Server(lambda _: scripted_engine(), port=taken.getsockname()[1])


def test_a_client_that_leaves_frees_its_place() -> None:
    with ServerThread(lambda _: scripted_engine(step_s=0.005)) as server:
        server.wait_ready()
        for body in (LONG, LONG | {"stream": True}, LONG | {"stream": True, "n": 3}):
            connection = open_stream(server, body)
            wait_for(lambda: server.metric("tokenmill_sequences_running") > 0)
            connection.close()
            server.wait_idle()
        assert server.metric('tokenmill_sequences_finished_total{reason="cancelled"}') == 5
        assert ask(server, {"prompt": "abc", "max_tokens": 1}).status_code == 200


def test_a_client_that_leaves_while_sending_is_no_fault_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    with ServerThread(lambda _: scripted_engine()) as server:
        server.wait_ready()
        with socket.create_connection(("127.0.0.1", server.server.port)) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        wait_for(lambda: server.metric('tokenmill_requests_refused_total{status="499"}') == 1)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_client_that_never_reads_hurts_nobody() -> None:
    engine = scripted_engine(step_s=0.001)
    with ServerThread(lambda _: engine) as server:
        server.wait_ready()
        stuck = [open_stream(server, LONG | {"stream": True, "logprobs": 20}) for _ in range(3)]
        ids = engine.tokenizer.encode("abc", add_special=True, parse_special=True)
        for _ in range(3):
            answer = ask(server, {"prompt": "abc", "max_tokens": 50, "seed": 4})
            assert answer.json()["choices"][0]["text"] == expected_text(engine, ids, 50, 4)
        for connection in stuck:
            connection.close()
        server.wait_idle()


def test_a_client_that_never_reads_is_cut_off() -> None:
    settings = ServerSettings(stalled_s=0.2)
    with ServerThread(lambda _: scripted_engine(), settings) as server:
        server.wait_ready()
        body = LONG | {"stream": True, "logprobs": 5, "n": 2}
        stuck = [open_stream(server, body) for _ in range(2)]
        wait_for(lambda: server.metric("tokenmill_requests_active") == 2)
        wait_for(lambda: server.metric("tokenmill_requests_active") == 0, timeout=20)
        for connection in stuck:
            connection.close()
        server.wait_idle()


def test_a_full_queue_is_429_and_recovers() -> None:
    with ServerThread(lambda _: scripted_engine(max_sequences=2, queue_limit=3, step_s=0.002)) as server:
        server.wait_ready()
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda _: ask(server, LONG | {"max_tokens": 100}), range(12)))
        statuses = sorted(answer.status_code for answer in answers)
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 5
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert server.metric('tokenmill_requests_refused_total{status="429"}') == statuses.count(429)
        assert ask(server, {"prompt": "abc", "max_tokens": 1}).status_code == 200


def test_too_many_choices_for_the_queue_leave_nothing_behind() -> None:
    with ServerThread(lambda _: scripted_engine(max_sequences=2, queue_limit=1, step_s=0.002)) as server:
        server.wait_ready()
        assert ask(server, LONG | {"n": 4}).status_code == 429
        server.wait_idle()
        assert ask(server, {"prompt": "abc", "max_tokens": 1}).status_code == 200


def test_stop_drains() -> None:
    engine = scripted_engine(step_s=0.002)
    ids = engine.tokenizer.encode("abc", add_special=True, parse_special=True)
    with ServerThread(lambda _: engine) as server, ThreadPoolExecutor(2) as pool:
        server.wait_ready()
        running = pool.submit(ask, server, LONG | {"max_tokens": 400})
        wait_for(lambda: server.metric("tokenmill_sequences_running") == 1)
        server.server.stop()
        wait_for(lambda: httpx.get(f"{server.url}/ready").json()["status"] == "draining")
        assert httpx.get(f"{server.url}/health").status_code == 200
        refused = ask(server)
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the server is draining")
        answer = running.result()
        assert answer.json()["choices"][0]["text"] == expected_text(engine, ids, 400, 1)
        server.join()
    assert server.error is None


def test_the_drain_has_a_limit_and_tells_the_clients() -> None:
    settings = ServerSettings(drain_s=0.2)
    with ServerThread(lambda _: scripted_engine(step_s=0.01), settings) as server, ThreadPoolExecutor(2) as pool:
        server.wait_ready()
        whole = pool.submit(ask, server, LONG)
        streamed = pool.submit(ask, server, LONG | {"stream": True})
        wait_for(lambda: server.metric("tokenmill_sequences_running") == 2)
        server.server.stop()
        assert whole.result().status_code == 503
        assert "shutting down" in whole.result().json()["error"]["message"]
        last = streamed.result().text.strip().split("\n\n")[-2:]
        assert "shutting down" in json.loads(last[0].removeprefix("data: "))["error"]["message"]
        assert last[1] == "data: [DONE]"
        server.join()


def test_an_engine_that_fails_is_not_healthy_and_does_not_hang() -> None:
    def explode(step: SequenceStep) -> str:
        if step.position > 20:
            raise MemoryError("no memory for the step")
        return ""

    with ServerThread(lambda _: scripted_engine(fail_when=explode)) as server:
        server.wait_ready()
        failed = ask(server)
        assert failed.status_code == 500
        assert "no memory for the step" in failed.json()["error"]["message"]
        assert httpx.get(f"{server.url}/health").status_code == 503
        assert httpx.get(f"{server.url}/ready").json()["status"] == "failed"
        assert ask(server).status_code == 503


def test_one_bad_sequence_does_not_hurt_the_others() -> None:
    engine = scripted_engine(fail_when=lambda s: "a value is not finite" if 99 in s.tokens else "")
    bad = {"prompt": [99], "max_tokens": 3}
    with ServerThread(lambda _: engine) as server, ThreadPoolExecutor(4) as pool:
        server.wait_ready()
        answers = list(pool.map(lambda i: ask(server, LONG | {"max_tokens": 50} if i % 2 else bad), range(8)))
    assert [answer.status_code for answer in answers] == [500, 200] * 4
    assert "not finite" in answers[0].json()["error"]["message"]


def test_a_silent_stream_is_kept_alive() -> None:
    settings = ServerSettings(keep_alive_s=0.05)
    with ServerThread(lambda _: scripted_engine(step_s=0.3), settings) as server:
        server.wait_ready()
        text = ask(server, {"prompt": "abc", "max_tokens": 2, "stream": True}).text
    assert text.count(": keep-alive\n\n") >= 4
    assert text.endswith("data: [DONE]\n\n")


def test_several_names() -> None:
    with ServerThread(lambda _: scripted_engine(), ServerSettings(model_names=("a", "b"))) as server:
        server.wait_ready()
        assert [m["id"] for m in httpx.get(f"{server.url}/v1/models").json()["data"]] == ["a", "b"]
        assert ask(server, {"prompt": "x", "model": "b", "max_tokens": 1}).json()["model"] == "b"
        assert ask(server, {"prompt": "x", "max_tokens": 1}).json()["model"] == "a"
        assert ask(server, {"prompt": "x", "model": "scripted"}).status_code == 404
