"""Health: alive, ready and started are three truths."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from headway.core.batch import Close
from headway.core.config import ModelConfig
from headway.core.events import Advice, BatchClosed, BatchFinished, Refused
from headway.server.app import App
from headway.server.service import Served, Service
from tests.server.toy import ToyRuntime, make_service

pytestmark = pytest.mark.asyncio


async def get(service: Service, path: str) -> tuple[int, Any]:
    transport = httpx.ASGITransport(App(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://h") as c:
        answer = await c.get(path)
        kind = answer.headers["content-type"]
        return answer.status_code, answer.json() if "json" in kind else answer.text


async def test_h4_no_model_is_not_ready() -> None:
    nothing = make_service()
    assert (await get(nothing, "/readyz"))[0] == 503
    assert (await get(nothing, "/startupz"))[0] == 503
    assert (await get(nothing, "/livez"))[0] == 200
    unregistered = ToyRuntime()
    unregistered.up = False
    assert (await get(make_service(unregistered), "/v2/health/ready"))[0] == 503


async def test_h11_the_phase_is_machine_readable_while_starting() -> None:
    runtime = ToyRuntime()
    runtime.up, runtime.phase, runtime.info = False, "warmup", None
    service = make_service(runtime)
    status, told = await get(service, "/startupz")
    assert (status, told["status"]) == (503, "starting")
    assert told["models"]["m"]["phase"] == "warmup"
    runtime.up = True
    assert (await get(service, "/startupz"))[0] == 200
    runtime.up = False
    assert (await get(service, "/startupz"))[0] == 200, "it has started; readiness is another truth"
    assert (await get(service, "/readyz"))[0] == 503
    assert (await get(service, "/livez"))[0] == 200


async def test_h1_pending_work_without_progress_is_not_live() -> None:
    runtime = ToyRuntime()
    service = make_service(runtime, live_stall_s=5.0)
    runtime.stalled_s = 4.0
    assert (await get(service, "/livez"))[0] == 200
    runtime.stalled_s = 6.0
    status, told = await get(service, "/livez")
    assert (status, told["status"], told["stalled"]) == (503, "stalled", ["m"])
    assert (await get(service, "/health"))[0] == 503
    assert (await get(service, "/v2/health/live"))[0] == 503


async def test_h2_busy_is_neither_dead_nor_unready() -> None:
    service = make_service(ToyRuntime())
    service.in_flight = 500
    assert (await get(service, "/livez"))[1]["status"] == "busy"
    assert (await get(service, "/readyz"))[0] == 200
    assert (await get(service, "/health"))[0] == 200


async def test_h12_a_model_loaded_later_does_not_make_the_server_unready() -> None:
    service = make_service(ToyRuntime())
    loading = ToyRuntime()
    loading.up, loading.phase = False, "load"
    service.models["late"] = Served(ModelConfig(name="late"), loading, loading, gates=False)
    assert (await get(service, "/readyz"))[0] == 200
    assert (await get(service, "/v2/models/late/ready"))[0] == 503
    assert (await get(service, "/v2/models/m/ready"))[0] == 200


async def test_h7_readiness_goes_off_while_requests_are_still_served() -> None:
    service = make_service(ToyRuntime())
    service.phase = "lingering"
    assert (await get(service, "/readyz"))[0] == 503
    assert (await get(service, "/v2/models/m/ready"))[0] == 503
    assert (await get(service, "/livez"))[0] == 200
    assert service.refusal() is None


async def test_a_failed_start_is_told_everywhere() -> None:
    runtime = ToyRuntime()
    runtime.up, runtime.phase = False, "failed"
    service = make_service(runtime)
    service.phase, service.failure = "failed", "no such file"
    assert (await get(service, "/livez"))[0] == 503
    assert (await get(service, "/startupz"))[1]["error"] == "no such file"


def closed(batch: int, rows: int = 2) -> BatchClosed:
    return BatchClosed(
        now=10.0,
        model="m",
        batch_id=batch,
        worker=0,
        rows=rows,
        requests=rows,
        longest=3.0,
        total=5.0,
        padded_rows=0,
        opened_s=9.9,
        reason=Close.IDLE,
        predicted_s=0.0,
        waiting_rows=0,
        ids=tuple(range(rows)),
        waits_s=(0.1,) * rows,
    )


def finished(batch: int, *, ok: bool = True, rows: int = 2) -> BatchFinished:
    return BatchFinished(
        now=11.0,
        model="m",
        batch_id=batch,
        worker=0,
        rows=rows,
        ok=ok,
        run_s=0.5,
        decode_s=0.01,
        encode_s=0.02,
        padded=6.0,
        useful=5.0,
        errors=0,
        latencies_s=(0.7,) * rows,
        late=0,
    )


async def test_o7_recent_batches_say_why_they_closed() -> None:
    runtime = ToyRuntime()
    service = make_service(runtime, history_batches=3)
    runtime.records = [closed(i) for i in range(5)]
    runtime.records += [finished(4), finished(0), Advice(1.0, "m", "sparse", "send more at once")]
    told = (await get(service, "/debug/batches?last=2"))[1]
    assert [b["batch_id"] for b in told["batches"]] == [4, 3]
    newest = told["batches"][0]
    assert newest["reason"] == "idle"
    assert newest["run_s"] == 0.5
    assert newest["padding_waste"] == pytest.approx(1 / 6, abs=1e-3)
    assert "run_s" not in told["batches"][1]
    assert told["advice"][0]["text"] == "send more at once"
    assert (await get(service, "/debug/batches?model=x"))[1]["batches"] == []
    assert len(service.history) == 3


async def test_triton_statistics_count_requests_and_executions() -> None:
    runtime = ToyRuntime()
    service = make_service(runtime)
    runtime.records = [
        closed(1),
        finished(1),
        finished(2, ok=False, rows=1),
        Refused(12.0, "m", 9, "queue_full", 0.0),
    ]
    told = (await get(service, "/v2/models/m/stats"))[1]["model_stats"][0]
    assert (told["inference_count"], told["execution_count"]) == (2, 1)
    stats = told["inference_stats"]
    assert stats["success"]["count"] == 2
    assert stats["fail"]["count"] == 2
    assert stats["queue"] == {"count": 2, "ns": 200_000_000}
    assert stats["compute_infer"] == {"count": 2, "ns": 1_000_000_000}
    assert told["batch_stats"][0]["batch_size"] == 2
    assert told["last_inference"] > 1.6e12


async def test_o1_every_scrape_shows_all_and_never_less() -> None:
    runtime = ToyRuntime()
    service = make_service(runtime)
    seen = []
    for i in range(20):
        runtime.records = [closed(i, 10), finished(i, rows=10)]
        text = (await get(service, "/metrics"))[1]
        line = next(s for s in text.splitlines() if 'outcome="ok"' in s)
        seen.append(float(line.split()[-1]))
    assert seen == sorted(seen)
    assert seen[-1] == 200


async def test_o2_the_six_series_are_there_by_default() -> None:
    text = (await get(make_service(ToyRuntime()), "/metrics"))[1]
    for name in (
        'headway_requests_waiting{model="m"}',
        'headway_requests_running{model="m"}',
        'headway_batch_rows_bucket{model="m"',
        'headway_queue_wait_seconds_bucket{model="m"',
        'headway_run_seconds_bucket{model="m"',
        'headway_requests_total{model="m",outcome="error"}',
    ):
        assert name in text
