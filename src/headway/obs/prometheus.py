"""Metrics in Prometheus' text format, counted once per batch from event records.

Knows the one list of metrics (`METRICS`) and how records become numbers; must not know HTTP or how
batches form. Histograms are plain lists filled by bisection: a request costs well under a
microsecond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from headway.core.events import BatchClosed, BatchFinished, Cancelled, Event, Refused, WorkerChanged
from headway.core.ports import FrontStatus, ModelStatus

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, kind, meaning and labels; histograms have bucket edges."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ("model",)
    edges: tuple[float, ...] = ()
    page: str = ""
    """When to wake someone, if ever."""


_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

METRICS: tuple[Metric, ...] = (
    Metric(
        "headway_requests_total",
        "counter",
        "Requests answered by the model, by outcome",
        ("model", "outcome"),
        page="errors above 1 % of requests for 5 min",
    ),
    Metric(
        "headway_refused_total",
        "counter",
        "Requests refused before they ran, by reason",
        ("model", "code"),
        page="above 5 % of requests for 5 min",
    ),
    Metric(
        "headway_cancelled_total",
        "counter",
        "Requests whose client left, by whether they ran",
        ("model", "running"),
    ),
    Metric("headway_late_total", "counter", "Requests answered after their deadline or objective"),
    Metric(
        "headway_batches_total",
        "counter",
        "Batches handed to a worker, by why they closed",
        ("model", "reason"),
    ),
    Metric("headway_rows_total", "counter", "Rows handed to workers"),
    Metric("headway_padded_rows_total", "counter", "Rows added to reach a size the model allows"),
    Metric(
        "headway_padded_size_total", "counter", "Size computed, padding included (model's unit)"
    ),
    Metric("headway_useful_size_total", "counter", "Size that carried data (model's unit)"),
    Metric("headway_batch_rows", "histogram", "Rows of a batch", edges=_ROWS),
    Metric(
        "headway_queue_wait_seconds",
        "histogram",
        "Arrival to batch closed, per request",
        edges=_SECONDS,
        page="p99 above half the objective for 5 min",
    ),
    Metric(
        "headway_request_seconds",
        "histogram",
        "Arrival to answer, per request",
        edges=_SECONDS,
        page="p99 above the objective for 5 min",
    ),
    Metric("headway_run_seconds", "histogram", "Time in predict, per batch", edges=_SECONDS),
    Metric("headway_decode_seconds", "histogram", "Decoding of a batch", edges=_SECONDS),
    Metric("headway_encode_seconds", "histogram", "Encoding of a batch's answers", edges=_SECONDS),
    Metric(
        "headway_worker_losses_total",
        "counter",
        "Workers that died or were replaced, by reason",
        ("model", "reason"),
        page="more than 3 in 10 min",
    ),
    Metric("headway_requests_waiting", "gauge", "Requests waiting: the signal to scale on"),
    Metric("headway_rows_waiting", "gauge", "Rows waiting"),
    Metric("headway_requests_running", "gauge", "Requests in batches that run"),
    Metric("headway_workers_up", "gauge", "Workers that can serve", page="0 for 1 min"),
    Metric("headway_model_ready", "gauge", "1 while the model can serve"),
    Metric(
        "headway_stalled_seconds",
        "gauge",
        "Work is pending and nothing moved for this long",
        page="above 10 s",
    ),
    Metric("headway_http_answers_total", "counter", "HTTP answers", ("route", "status")),
    Metric("headway_http_in_flight", "gauge", "Model requests being served over HTTP", ()),
    Metric("headway_http_connections", "gauge", "Open connections", ()),
    Metric(
        "headway_loop_lag_seconds", "gauge", "How late the event loop runs", (), page="above 0.5"
    ),
    Metric("headway_uptime_seconds", "gauge", "Time since the server started", ()),
)
_BY_NAME = {m.name: m for m in METRICS}


@dataclass(slots=True)
class Histogram:
    """Counts per bucket, with a sum."""

    edges: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.edges) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value

    def observe_all(self, values: Iterable[float]) -> None:
        """Count several."""
        counts, edges = self.counts, self.edges
        for value in values:
            counts[bisect_left(edges, value)] += 1
            self.total += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Cumulative buckets, sum and count."""
        seen = 0
        head = f"{name}_bucket{{{labels}{',' if labels else ''}le="
        for edge, count in zip(self.edges, self.counts, strict=False):
            seen += count
            yield f'{head}"{edge:g}"}} {seen}\n'
        seen += self.counts[-1]
        yield f'{head}"+Inf"}} {seen}\n'
        yield f"{name}_sum{{{labels}}} {self.total!r}\n"
        yield f"{name}_count{{{labels}}} {seen}\n"


class _Model:
    """One model's numbers."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], float] = {}
        self.histograms = {m.name: Histogram(m.edges) for m in METRICS if m.kind == "histogram"}
        h = self.histograms
        self.rows = h["headway_batch_rows"]
        self.waits = h["headway_queue_wait_seconds"]
        self.latencies = h["headway_request_seconds"]
        self.runs = h["headway_run_seconds"]
        self.decodes = h["headway_decode_seconds"]
        self.encodes = h["headway_encode_seconds"]
        for outcome in ("ok", "error"):
            self.add("headway_requests_total", 0, outcome)
        for metric in METRICS:
            if metric.kind == "counter" and metric.labels == ("model",):
                self.add(metric.name, 0)

    def add(self, name: str, amount: float, label: str = "") -> None:
        key = (name, label)
        self.counts[key] = self.counts.get(key, 0) + amount

    def closed(self, e: BatchClosed) -> None:
        self.add("headway_batches_total", 1, e.reason.value)
        self.add("headway_rows_total", e.rows)
        self.add("headway_padded_rows_total", e.padded_rows)
        self.rows.observe(e.rows)
        self.waits.observe_all(e.waits_s)

    def finished(self, e: BatchFinished) -> None:
        members = len(e.latencies_s)
        errors = e.errors if e.ok else members
        self.add("headway_requests_total", max(members - errors, 0), "ok")
        self.add("headway_requests_total", errors, "error")
        self.add("headway_late_total", e.late)
        self.add("headway_padded_size_total", e.padded)
        self.add("headway_useful_size_total", e.useful)
        self.latencies.observe_all(e.latencies_s)
        if e.ok:
            self.runs.observe(e.run_s)
            self.decodes.observe(e.decode_s)
            self.encodes.observe(e.encode_s)


class Meters:
    """All metrics of one replica: fed with records, rendered on a scrape."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}

    def observe(self, events: Iterable[Event]) -> None:
        """Count some records."""
        for event in events:
            model = self._model(event.model)
            if isinstance(event, BatchClosed):
                model.closed(event)
            elif isinstance(event, BatchFinished):
                model.finished(event)
            elif isinstance(event, Refused):
                model.add("headway_refused_total", 1, event.code)
            elif isinstance(event, Cancelled):
                model.add("headway_cancelled_total", 1, "yes" if event.running else "no")
            elif isinstance(event, WorkerChanged) and not event.up:
                model.add("headway_worker_losses_total", 1, event.reason)

    def histogram(self, model: str, name: str) -> Histogram:
        """One model's histogram, for reports and tests."""
        return self._model(model).histograms[name]

    def render(self, models: dict[str, ModelStatus], front: FrontStatus) -> bytes:
        """The exposition: every metric of `METRICS`, in order."""
        for name in models:
            self._model(name)
        gauges = _gauges(models, front)
        out: list[str] = []
        for metric in METRICS:
            out.append(f"# HELP {metric.name} {metric.text}\n# TYPE {metric.name} {metric.kind}\n")
            if metric.name == "headway_http_answers_total":
                out += [
                    _line(metric, (route, str(status)), count)
                    for (route, status), count in sorted(front.answers.items())
                ]
            elif metric.kind == "gauge":
                out += [_line(metric, labels, value) for labels, value in gauges[metric.name]]
            else:
                out += self._lines(metric)
        return "".join(out).encode()

    def _lines(self, metric: Metric) -> Iterator[str]:
        for name, model in self._models.items():
            if metric.kind == "histogram":
                label = f'model="{_escape(name)}"'
                yield from model.histograms[metric.name].lines(metric.name, label)
                continue
            for (counter, label), value in sorted(model.counts.items()):
                if counter == metric.name:
                    labels = (name, label) if len(metric.labels) > 1 else (name,)
                    yield _line(metric, labels, value)

    def _model(self, name: str) -> _Model:
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = _Model()
        return found


_Rows = list[tuple[tuple[str, ...], float]]


def _gauges(models: dict[str, ModelStatus], front: FrontStatus) -> dict[str, _Rows]:
    rows: dict[str, _Rows] = {
        "headway_http_in_flight": [((), front.in_flight)],
        "headway_http_connections": [((), front.connections)],
        "headway_loop_lag_seconds": [((), front.loop_lag_s)],
        "headway_uptime_seconds": [((), front.uptime_s)],
    }
    for name, s in models.items():
        for metric, value in (
            ("headway_requests_waiting", s.waiting_requests),
            ("headway_rows_waiting", s.waiting_rows),
            ("headway_requests_running", s.running_requests),
            ("headway_workers_up", s.workers_up),
            ("headway_model_ready", int(s.ready)),
            ("headway_stalled_seconds", s.stalled_s),
        ):
            rows.setdefault(metric, []).append(((name,), value))
    return {m.name: rows.get(m.name, []) for m in METRICS if m.kind == "gauge"}


def _line(metric: Metric, labels: tuple[str, ...], value: float) -> str:
    told = ",".join(f'{k}="{_escape(v)}"' for k, v in zip(metric.labels, labels, strict=True))
    return f"{metric.name}{{{told}}} {value!r}\n" if told else f"{metric.name} {value!r}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
