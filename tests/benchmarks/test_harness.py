"""The benchmark's own parts: bars, tables, the client's line, process readers, bodies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from benchmarks.harness import catalog, client, environments, front_cost, process_tree
from benchmarks.harness.client import Load, Outcome
from benchmarks.harness.decide_cost import measure
from benchmarks.harness.rows import Bar, Row, as_json, table
from benchmarks.request_batching import ROWS, chosen


@pytest.mark.parametrize(
    ("bar", "value", "peer", "met"),
    [
        (Bar(">=", 94), 94.0, None, True),
        (Bar(">=", 94), 93.9, None, False),
        (Bar("<=", 0.3), 0.3, None, True),
        (Bar("<", 50), 50.0, None, False),
        (Bar(">=", 1.5, times_peer=True), 150.0, 100.0, True),
        (Bar(">=", 1.5, times_peer=True), 149.0, 100.0, False),
        (Bar(">=", 1.5, times_peer=True), 149.0, None, False),
    ],
)
def test_bars(bar: Bar, value: float, peer: float | None, met: bool) -> None:
    assert bar.met(value, peer) is met


def test_json_line_has_the_agreed_keys() -> None:
    row = Row(name="n", value=2.0, unit="/s", peer="p", peer_value=1.0, bar=Bar(">=", 2, True))
    line = json.loads(as_json(row, "make bench"))
    assert list(line) == ["name", "value", "unit", "peer", "peer_value", "bar", "ok", "command"]
    assert line["bar"] == ">= 2 x peer"
    assert line["ok"] is True
    assert json.loads(as_json(Row(name="n", value=1.0, unit="s"), ""))["ok"] is None


def test_table_shows_a_missed_bar() -> None:
    text = table([Row(name="slow", value=51_100.0, unit="/s", bar=Bar(">=", 60_000))])
    assert "51,100" in text
    assert "MISSED" in text
    assert len({len(line) for line in text.splitlines()}) == 1


LINE = {
    "secs": 2.0, "sent": 10, "ok": 8, "rps": 4.0, "p50": 1.0, "p99": 3.0, "max": 9.0,
    "refused": 2, "ref_p50": 0.5, "ref_p99": 0.6, "in_limit": 6, "timeouts": 0, "conn_err": 0,
    "reset": 0, "lost": 0, "open": 0, "client_cpu": 0.1, "err": "", "more": 1,
}  # fmt: skip


def test_the_clients_line() -> None:
    seen = Outcome.read(json.dumps(LINE))
    assert seen.in_limit_rps == 3.0
    assert not seen.all_answered
    short = {k: v for k, v in LINE.items() if k != "ref_p99"}
    with pytest.raises(ValueError, match="ref_p99"):
        Outcome.read(json.dumps(short))


def test_loads_become_arguments() -> None:
    load = Load(seconds=2, connections=64, rate=100, limit_ms=200, keep_open=True, seed=3)
    args = load.arguments(80, "/predict", "b.txt")
    assert args[:6] == ["-p", "80", "-u", "/predict", "-b", "b.txt"]
    assert args[-1] == "-o"
    for flag, value in (("-c", "64"), ("-r", "100"), ("-l", "200"), ("-s", "3"), ("-d", "2")):
        assert args[args.index(flag) + 1] == value
    assert "-r" not in Load(seconds=1, connections=1).arguments(80, "/", "b")


def test_process_readers_see_a_child() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in process_tree.descendants(os.getpid())
        assert process_tree.pss_mb([child.pid]) > 0.5
        assert process_tree.cpu_s([os.getpid()]) > 0
        assert process_tree.started_ticks(child.pid) > 0
    finally:
        child.kill()
        child.wait()
    assert process_tree.pss_mb([child.pid]) == 0
    assert process_tree.started_ticks(child.pid) == 0


def test_bodies_in_each_products_form() -> None:
    x = '{"x":[1.0,2.0]}'
    assert json.loads(catalog.in_items(x)) == {"items": [{"x": [1.0, 2.0]}]}
    assert json.loads(catalog.in_tensors(x))["inputs"][0]["datatype"] == "FP32"
    text = json.loads(catalog.in_tensors('{"text":"a"}'))["inputs"][0]
    assert (text["datatype"], text["data"]) == ("BYTES", ["a"])


def test_headways_packages_are_the_projects() -> None:
    names = [p.split(">")[0].split("=")[0] for p in environments.packages("headway")]
    assert {"uvicorn", "msgspec", "onnxruntime", "torch"} <= set(names)


def test_cache_follows_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    assert environments.cache() == tmp_path


def test_rows_are_chosen_by_name() -> None:
    assert chosen("idle, noop-1") == ["noop-1", "idle"]
    assert chosen("") == list(ROWS)
    with pytest.raises(SystemExit, match="no row is named nope"):
        chosen("nope")


class _Refuses(BaseHTTPRequestHandler):
    """Answers every second request 429."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).count += 1
        self.send_response(200 if self.count % 2 else 429)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.mark.slow
def test_the_client_counts_refusals_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    try:
        binary = client.build()
    except SystemExit as e:
        pytest.skip(str(e))
    bodies = tmp_path / "bodies.txt"
    bodies.write_text("{}\n")
    with HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        load = Load(seconds=0.3, connections=1, warm_s=0, limit_ms=0.0001, keep_open=True)
        args = load.arguments(server.server_port, "/", str(bodies))
        seen = client.Running(binary, args).outcome()
        server.shutdown()
    assert seen.open == 1
    assert seen.ok > 0
    assert abs(seen.refused - seen.ok) <= 1
    assert seen.in_limit == 0
    assert 0 < seen.ref_p50 <= seen.ref_p99
    assert seen.sent == seen.ok + seen.refused


@pytest.mark.parametrize(("work", "connections", "rows"), [("noop5", 64, 30), ("embed", 32, 1)])
def test_the_cost_of_deciding_is_counted_over_real_batches(
    work: str, connections: int, rows: float
) -> None:
    seen = measure(work, connections, batches=50)
    assert seen["batches"] >= 50
    assert seen["us_per_batch"] > 0
    assert seen["mean_rows"] >= rows


def test_every_stage_of_the_front_end_takes_time() -> None:
    assert all(us > 0 for us in front_cost.stages(turns=20).values())
