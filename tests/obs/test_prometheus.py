"""Metrics from event records."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core.events import Cancelled, Refused, WorkerChanged
from headway.core.ports import FrontStatus, ModelStatus
from headway.obs.prometheus import METRICS, Histogram, Meters
from tests.server.test_health import closed, finished

FRONT = FrontStatus("serving", 5.0, 3, 2, 0.001, {("predict", 200): 7, ("infer", 400): 1})


def samples(meters: Meters, **models: ModelStatus) -> dict[tuple[str, tuple[str, ...]], float]:
    text = meters.render(models, FRONT).decode()
    return {
        (s.name, tuple(s.labels.values())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_o2_o3_every_metric_is_exposed_and_documented_in_one_list() -> None:
    text = Meters().render({"m": ModelStatus("ready")}, FRONT).decode()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.type == metric.kind
        assert family.documentation == metric.text
    assert len(families) == len(METRICS)


def test_batches_are_counted_once() -> None:
    meters = Meters()
    meters.observe([closed(1), finished(1), finished(2, ok=False, rows=1)])
    got = samples(meters, m=ModelStatus("ready", ready=True, waiting_requests=4, stalled_s=1.5))
    assert got["headway_batches_total", ("m", "idle")] == 1
    assert got["headway_rows_total", ("m",)] == 2
    assert got["headway_requests_total", ("m", "ok")] == 2
    assert got["headway_requests_total", ("m", "error")] == 1
    assert got["headway_padded_size_total", ("m",)] == 12
    assert got["headway_queue_wait_seconds_count", ("m",)] == 2
    assert got["headway_queue_wait_seconds_sum", ("m",)] == pytest.approx(0.2)
    assert got["headway_request_seconds_count", ("m",)] == 3
    assert got["headway_run_seconds_count", ("m",)] == 1
    assert got["headway_requests_waiting", ("m",)] == 4
    assert got["headway_model_ready", ("m",)] == 1
    assert got["headway_http_answers_total", ("predict", "200")] == 7
    assert got["headway_http_connections", ()] == 3


def test_refusals_cancels_and_losses() -> None:
    meters = Meters()
    meters.observe(
        [
            Refused(1.0, "m", 1, "queue_full", 0.0),
            Refused(1.0, "m", 2, "queue_full", 0.0),
            Cancelled(1.0, "m", 3, running=True),
            Cancelled(1.0, "m", 4, running=False),
            WorkerChanged(1.0, "m", 0, up=False, reason="worker_crashed"),
            WorkerChanged(1.0, "m", 0, up=True, reason="ready"),
        ]
    )
    got = samples(meters)
    assert got["headway_refused_total", ("m", "queue_full")] == 2
    assert got["headway_cancelled_total", ("m", "yes")] == 1
    assert got["headway_worker_losses_total", ("m", "worker_crashed")] == 1
    assert ("headway_worker_losses_total", ("m", "ready")) not in got


def test_histogram_edges_are_inclusive() -> None:
    h = Histogram((1.0, 2.0))
    h.observe(1.0)
    h.observe_all([1.5, 9.0])
    assert h.counts == [1, 1, 1]
    assert next(iter(h.lines("x", ""))) == 'x_bucket{le="1"} 1\n'
    assert Meters().histogram("m", "headway_batch_rows").counts == [0] * 10


def test_labels_are_escaped() -> None:
    got = samples(Meters(), **{'a"b\\c\nd': ModelStatus("ready")})
    assert ("headway_requests_waiting", ('a"b\\c\nd',)) in got
