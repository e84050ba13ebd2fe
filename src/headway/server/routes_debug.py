"""`/metrics` and `/debug/...`: what the server is doing and why.

Knows how to show the service's state; must not change it, and must not show bodies.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from headway.core.config import ModelConfig, ServerConfig, key_of
from headway.core.wire.problem import Answer, json_answer

if TYPE_CHECKING:
    from headway.server.routes import Ask
    from headway.server.service import Record


def metrics(ask: Ask) -> Answer:
    """`GET /metrics`: everything up to this moment, from the one process there is (O1)."""
    service = ask.service
    service.pump()
    statuses = {name: served.view.status() for name, served in service.models.items()}
    body = service.meters.render(statuses, service.front_status())
    return Answer(200, body, service.meters.content_type)


def config(ask: Ask) -> Answer:
    """`GET /debug/config`: the effective configuration with origins (B18)."""
    service = ask.service
    origins = service.origins
    parts: dict[str, ServerConfig | ModelConfig] = {
        "server": service.config.server,
        **{m.config.name: m.config for m in ask.models()},
    }
    document: dict[str, object] = {}
    for part, settings in parts.items():
        document[part] = {
            key_of(f): {
                "value": getattr(settings, f.name),
                "origin": origins.get(f"{part}.{key_of(f)}", "default"),
            }
            for f in fields(settings)
        }
    return json_answer(document)


def batches(ask: Ask) -> Answer:
    """`GET /debug/batches?last=20&model=m`: recent batches, newest first, with reasons (O7)."""
    ask.service.pump()
    model = ask.query.get("model")
    last = ask.query.get("last", "20")
    count = int(last) if last.isdecimal() else 20
    records = [r for r in reversed(ask.service.history) if model in {None, r.closed.model}]
    advice = [
        {"model": name, "code": code, "text": text}
        for (name, code), text in ask.service.advice.items()
    ]
    for served in ask.models():
        text = served.view.status().advice
        if text:
            advice.append({"model": served.name, "code": "shape", "text": text})
    return json_answer({"batches": [_record(r) for r in records[:count]], "advice": advice})


def state(ask: Ask) -> Answer:
    """`GET /debug/state`: phases, queues, workers, the service curve."""
    service = ask.service
    statuses = {name: asdict(served.view.status()) for name, served in service.models.items()}
    front = service.front_status()
    return json_answer(
        {
            "version": service.version,
            "phase": service.phase,
            "uptime_s": round(front.uptime_s, 3),
            "connections": front.connections,
            "in_flight": front.in_flight,
            "loop_lag_s": front.loop_lag_s,
            "models": statuses,
        }
    )


def _record(record: Record) -> dict[str, object]:
    closed, finished = record.closed, record.finished
    shown: dict[str, object] = {
        "batch_id": closed.batch_id,
        "model": closed.model,
        "worker": closed.worker,
        "requests": closed.requests,
        "rows": closed.rows,
        "padded_rows": closed.padded_rows,
        "longest": closed.longest,
        "total": closed.total,
        "reason": closed.reason.value,
        "open_s": round(closed.now - closed.opened_s, 6),
        "waits_s": [round(w, 6) for w in closed.waits_s],
        "waiting_rows": closed.waiting_rows,
        "predicted_s": closed.predicted_s,
    }
    if finished is not None:
        shown |= {
            "ok": finished.ok,
            "run_s": finished.run_s,
            "decode_s": finished.decode_s,
            "encode_s": finished.encode_s,
            "padding_waste": round(1 - finished.useful / finished.padded, 4)
            if finished.padded > 0
            else 0.0,
            "errors": finished.errors,
            "late": finished.late,
        }
    return shown
