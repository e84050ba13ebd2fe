"""`headway serve` as a process: it starts, tells, fails and leaves as promised."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.cli.cmd_init import TEMPLATE
from tests.cli.served import HEADWAY, ROOT, START_S, Server, environment, get, post, worker_of


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    running: list[Server] = []

    def begin(*args: str, cwd: Path = tmp_path) -> Server:
        running.append(Server(*args, cwd=cwd))
        return running[-1]

    yield begin
    for server in running:
        server.kill()


def test_the_file_init_writes_serves_as_it_is(start: Any, tmp_path: Path) -> None:
    """The first ten minutes: init, serve, the curl line printed, the load line printed."""
    (tmp_path / "app.py").write_text(TEMPLATE.format(file="app.py"))
    server = start("app.py")
    root = server.until()
    assert post(f"{root}/predict", {"x": [1, 2, 3]}) == (200, {"y": 12.0})
    time.sleep(0.05)
    text = "\n".join(server.lines)
    assert f"curl {root}/predict" in text and f"headway load {root}/predict" in text
    assert f"{root}/metrics" in text
    assert [line.split(":")[0] for line in server.lines[:3]] == ["app"] * 3, "phases come first"
    assert server.end() == 0


def test_b18_the_running_server_shows_its_settings(start: Any) -> None:
    """B18: the effective configuration is served, with origins."""
    server = start(
        "examples/sum.py", "--policy", "static", "--batch-window-ms", "300",
        "--max-batch-size", "4",
        cwd=ROOT,
    )  # fmt: skip
    root = server.until()
    shown = get(f"{root}/debug/config")["sum"]
    assert shown["batch_window_ms"] == {"value": 300.0, "origin": "flag"}
    begin_s = time.monotonic()
    assert post(f"{root}/predict", {"x": [1]})[0] == 200
    assert 0.25 < time.monotonic() - begin_s < 0.5, "the window in effect is the one asked for"


def test_h5_a_failing_setup_ends_with_the_cause_last(start: Any, tmp_path: Path) -> None:
    """H5: exit code not 0 within 5 s and the message on the last lines."""
    source = "def predict(batch):\n    return batch\nraise RuntimeError('weights are missing')\n"
    (tmp_path / "bad.py").write_text(source)
    begin_s = time.monotonic()
    server = start("bad.py")
    assert server.process.wait(START_S) == 1
    assert time.monotonic() - begin_s < 5
    server.end()
    assert "weights are missing" in server.lines[-1]


def test_a_missing_file_is_said_at_once(start: Any) -> None:
    server = start("absent.py")
    assert server.process.wait(START_S) == 2
    server.end()
    assert "there is no file absent.py" in "\n".join(server.lines[-2:])


def test_a_taken_port_is_said(start: Any, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(TEMPLATE.format(file="app.py"))
    port = start("app.py").until().rpartition(":")[2]
    code = subprocess.run(
        [*HEADWAY, "serve", "app.py", "--port", port],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=START_S,
        env=environment(),
    )  # fmt: skip
    assert code.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in code.stderr
    assert "--port 0" in code.stderr.splitlines()[-1]


def test_several_models_each_with_a_path(start: Any, tmp_path: Path) -> None:
    for name, factor in (("a", 2), ("b", 3)):
        (tmp_path / f"{name}.py").write_text(
            f"def predict(batch):\n    return [{factor} * i for i in batch]\n"
        )
    server = start("a.py", "b.py", "--set", "b.class=heavy")
    root = server.until()
    assert post(f"{root}/predict/a", 5) == (200, 10)
    assert post(f"{root}/predict/b", 5) == (200, 15)
    assert post(f"{root}/predict", 5)[0] == 404
    shown = get(f"{root}/debug/config")
    assert (shown["a"]["class"]["value"], shown["b"]["class"]["value"]) == ("light", "heavy")


def test_h8_term_answers_what_is_in_flight_and_leaves_0(start: Any, tmp_path: Path) -> None:
    """H8: a request running at SIGTERM is answered, then the exit code is 0."""
    (tmp_path / "slow.py").write_text(
        "import time\ndef predict(batch):\n    time.sleep(0.5)\n    return batch\n"
    )
    server = start("slow.py", "--linger-s", "0.2")
    root = server.until()
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(post(f"{root}/predict", [1])))
    caller.start()
    time.sleep(0.15)
    assert server.end(signal.SIGTERM) == 0
    caller.join()
    assert answers == [(200, [1])]
    assert any("drain" in line for line in server.lines)


def test_load_reports_the_batches_of_the_server(start: Any) -> None:
    """The bundled load generator against the server: answers, batches and why they closed."""
    server = start("examples/sum.py", cwd=ROOT)
    root = server.until()
    result = subprocess.run(
        [*HEADWAY, "load", root, "--concurrency", "8",
         "--duration", "0.5", "--warmup", "0", "--body", '{"x": [1, 2]}', "--json",
         "--objective", "p99<1s", "--check"],
        capture_output=True, text=True, check=False, timeout=START_S,
        env=environment(),
    )  # fmt: skip
    report = json.loads(result.stdout)
    assert result.returncode == 0 and report["met"] is True
    assert report["ok"] == report["sent"] > 20
    batches = report["batches"]
    assert batches["batches"] * batches["rows_mean"] == pytest.approx(report["ok"])
    assert sum(batches["reasons"].values()) == sum(batches["sizes"].values()) == batches["batches"]


def test_a_stream_comes_piece_by_piece(start: Any) -> None:
    server = start("examples/stream.py", cwd=ROOT)
    root = server.until()
    request = urllib.request.Request(
        f"{root}/predict", b'{"text": "one two"}', {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        body = answer.read().decode()
    assert body.index("one") < body.index("two")


def status(url: str) -> int:
    """The status of a GET."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def until(url: str, wanted: int, limit_s: float) -> float:
    """Seconds until a GET has the status wanted; fails at the limit."""
    begin_s = time.monotonic()
    while status(url) != wanted:
        assert time.monotonic() - begin_s < limit_s, f"{url} is not {wanted}"
        time.sleep(0.05)
    return time.monotonic() - begin_s


def test_h1_a_frozen_worker_is_not_ready_and_comes_back(start: Any) -> None:
    """H1: the worker process is stopped: not ready in time, still live, ready again later."""
    server = start("examples/sum.py", "--ready-stall-s", "1", cwd=ROOT)
    root = server.until()
    worker = worker_of(server)
    os.kill(worker, signal.SIGSTOP)
    try:
        until(f"{root}/readyz", 503, 2.0)
        assert status(f"{root}/livez") == 200
    finally:
        os.kill(worker, signal.SIGCONT)
    until(f"{root}/readyz", 200, 2.0)


def test_h3_a_killed_worker_is_replaced(start: Any) -> None:
    """H3: 503 in under 2 s, then recovery by itself."""
    server = start("examples/sum.py", cwd=ROOT)
    root = server.until()
    os.kill(worker_of(server), signal.SIGKILL)
    until(f"{root}/readyz", 503, 2.0)
    until(f"{root}/readyz", 200, 5.0)
    assert post(f"{root}/predict", {"x": [1, 2]}) == (200, {"y": 3.0})


def test_h13_no_worker_outlives_a_killed_server(start: Any) -> None:
    """H13: kill -9 of the parent leaves no child after 3 s."""
    server = start("examples/sum.py", cwd=ROOT)
    server.until()
    worker = worker_of(server)
    server.kill()
    end_s = time.monotonic() + 3
    while Path(f"/proc/{worker}").exists() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()
