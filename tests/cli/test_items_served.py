"""Items of users' complaints at a running `headway serve`: what a client of it would notice."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served import Server, get, worker_of

APP = """
import time
import headway


class Model(headway.Model):
    def load(self):
        self.seen = []

    def predict(self, batch):
        self.seen += [item for item in batch if not isinstance(item, bytes)]
        results = []
        for item in batch:
            asked = item if isinstance(item, dict) else {}
            if "raise" in asked:
                raise ValueError("secret")
            if "give" in asked:
                return asked["give"]
            time.sleep(asked.get("sleep", 0))
            if "fail" in asked:
                item = headway.ItemError(asked["fail"], "asked to fail")
            results.append(list(self.seen) if asked.get("seen") else item)
        return results
"""
STREAM = """
import time


def predict(batch):
    for step in range(10):
        time.sleep(0.03)
        yield ["%d " % step] * len(batch)
"""
JSON = {"content-type": "application/json"}


class Client:
    """Plain HTTP calls to one server."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.address = root.removeprefix("http://")

    def post(
        self,
        body: Any,
        path: str = "/predict",
        headers: dict[str, str] | None = None,
        timeout_s: float = 10.0,
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.address, timeout=timeout_s)
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, data, headers or JSON)
            answer = connection.getresponse()
            text = answer.read()
            kind = answer.headers.get("content-type", "")
            return answer.status, json.loads(text) if "json" in kind else text
        finally:
            connection.close()

    def together(self, *bodies: Any, **more: Any) -> list[tuple[int, Any]]:
        """Calls at the same time, answers in their order."""
        found: list[Any] = [None] * len(bodies)

        def call(at: int) -> None:
            found[at] = self.post(bodies[at], **more)

        threads = [threading.Thread(target=call, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def open(self, body: bytes) -> socket.socket:
        """Send a request and leave its answer unread."""
        host, _, port = self.address.partition(":")
        raw = socket.create_connection((host, int(port)), timeout=10)
        head = f"POST /predict HTTP/1.1\r\nhost: h\r\ncontent-length: {len(body)}\r\n"
        raw.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        return raw


def until(true: Callable[[], bool], limit_s: float = 5.0) -> None:
    end_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def begin(folder: Path, source: str, *args: str) -> Server:
    (folder / "app.py").write_text(source)
    return Server("app.py", *args, cwd=folder)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Server]]:
    """Four calls made together are one batch here."""
    server = begin(
        tmp_path_factory.mktemp("windowed"), APP, "--policy", "static", "--max-batch-size", "4",
        "--batch-window-ms", "300", "--body-bytes-max", "1000000",
    )  # fmt: skip
    yield Client(server.until()), server
    server.kill()


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One request at a time, greedy."""
    server = begin(tmp_path_factory.mktemp("single"), APP, "--max-batch-size", "1")
    yield Client(server.until())
    server.kill()


Windowed = tuple[Client, Server]


def test_b9_one_item_of_four_fails_alone(windowed: Windowed) -> None:
    client, _ = windowed
    got = client.together(1, {"fail": 422}, 3, 4)
    assert [status for status, _ in got] == [200, 422, 200, 200]
    assert got[1][1]["detail"] == "asked to fail"
    assert get(f"{client.root}/debug/batches?last=1")["batches"][0]["rows"] == 4


def test_b10_an_exception_is_500_with_an_id_and_one_traceback(windowed: Windowed) -> None:
    client, server = windowed
    got = client.together(1, {"raise": 1}, 3, 4)
    assert [status for status, _ in got] == [500] * 4
    ident = got[0][1]["detail"].partition("error id ")[2].rstrip(")")
    assert len(ident) == 8 and "secret" not in json.dumps(got)
    assert client.post(5) == (200, 5)
    until(lambda: any(ident in line for line in server.lines))
    log = "\n".join(server.lines)
    assert log.count("ValueError: secret") == 1 and log.count("Traceback") == 1


def test_b13_b14_wrong_results_are_500_and_named(windowed: Windowed) -> None:
    client, _ = windowed
    got = client.together({"give": [1, 2, 3]}, 2, 3, 4)
    assert [status for status, _ in got] == [500] * 4
    assert all("3 results for 4 items" in told["detail"] for _, told in got)
    got = client.together({"give": "Hello"}, 2, 3, 4)
    assert all(status == 500 and "returned str" in told["detail"] for status, told in got)
    assert client.post(5) == (200, 5)


def test_b23_four_binary_uploads_at_once_come_back_whole(windowed: Windowed) -> None:
    client, _ = windowed
    bodies = [bytes([n]) * (300_000 if n % 2 else 10) for n in range(1, 5)]
    got = client.together(*bodies, headers={"content-type": "application/octet-stream"})
    assert got == [(200, body) for body in bodies]


def test_malformed_oversized_and_unknown_are_told(windowed: Windowed) -> None:
    client, _ = windowed
    status, told = client.post(b'{"x": [1,\n 2')
    assert status == 400 and "byte 12, line 2, column 3" in told["detail"]
    assert told["code"] == "malformed_json"
    status, told = client.post(b" " * 1_000_001)
    text = told["detail"] + told["hint"]
    assert status == 413
    assert all(word in text for word in ("1000001", "1000000", "body_bytes_max"))
    status, told = client.post(1, "/predict/other")
    assert status == 404 and "app" in told["hint"]


def test_b11_impatient_callers_leave_nothing_broken(single: Client) -> None:
    for _ in range(20):
        with pytest.raises(TimeoutError):
            single.post({"sleep": 0.03}, timeout_s=0.005)
    assert [single.post(n)[0] for n in range(5)] == [200] * 5
    until(lambda: get(f"{single.root}/livez")["status"] == "idle")


def test_c1_c3_c4_who_leaves_while_waiting_never_runs(single: Client) -> None:
    busy = single.open(b'{"sleep": 0.4}')
    until(lambda: get(f"{single.root}/debug/state")["in_flight"] == 1)
    gone, kept = single.open(b'"gone"'), single.open(b'"kept"')
    until(lambda: get(f"{single.root}/debug/state")["in_flight"] == 3)
    gone.close()
    assert kept.recv(4096).startswith(b"HTTP/1.1 200")
    seen = single.post({"seen": 1})[1]
    assert "kept" in seen and "gone" not in seen
    busy.close()
    kept.close()
    until(lambda: get(f"{single.root}/livez")["status"] == "idle", 1.0)


@pytest.fixture
def streaming(tmp_path: Path) -> Iterator[Server]:
    server = begin(tmp_path, STREAM, "--linger-s", "0.1")
    yield server
    server.kill()


def test_c3_h8_a_stream_left_frees_its_place_and_the_others_end_whole(streaming: Server) -> None:
    client = Client(streaming.until())
    left = client.open(b"1")
    assert left.recv(4096)
    left.close()
    until(lambda: get(f"{client.root}/debug/state")["models"]["app"]["running_requests"] == 0, 1.0)
    found: list[Any] = []
    callers = [threading.Thread(target=lambda: found.append(client.post(1))) for _ in range(5)]
    for caller in callers:
        caller.start()
    until(lambda: get(f"{client.root}/debug/state")["in_flight"] == 5)
    assert streaming.end(signal.SIGTERM) == 0
    for caller in callers:
        caller.join()
    assert [status for status, _ in found] == [200] * 5
    for _, body in found:
        text = str(body)
        assert all(f"{step} " in text for step in range(10)), text


ONCE = """
from pathlib import Path
import headway


class Model(headway.Model):
    def load(self):
        mark = Path("loaded")
        if mark.exists():
            raise RuntimeError("the weights have gone")
        mark.touch()

    def predict(self, batch):
        return batch
"""


def test_h5_a_worker_that_cannot_come_back_ends_the_server_with_the_cause(tmp_path: Path) -> None:
    server = begin(tmp_path, ONCE)
    try:
        client = Client(server.until())
        assert client.post(1) == (200, 1)
        os.kill(worker_of(server), signal.SIGKILL)
        assert server.process.wait(10) == 1
        server.end()
        assert "the weights have gone" in server.lines[-1]
    finally:
        server.kill()
