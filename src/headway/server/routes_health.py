"""Health: three truths that do not replace each other.

`/livez`: restart me if this fails. `/readyz`: send me no traffic if this fails. `/startupz`: I am
not up yet. Knows how the service states these; must not ask a worker anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.wire.problem import Answer, json_answer

if TYPE_CHECKING:
    from headway.server.routes import Ask
    from headway.server.service import Service

_RETRY = (("retry-after", "1"),)


def _answer(ok: bool, document: dict[str, object]) -> Answer:
    return json_answer(document, 200 if ok else 503, () if ok else _RETRY)


def livez(ask: Ask) -> Answer:
    """200 unless work is pending and nothing moves, or start-up failed for good (H1, H2)."""
    service = ask.service
    stalled = service.stalled()
    failed = service.phase == "failed"
    state = (
        "failed" if failed else "stalled" if stalled else "busy" if service.in_flight else "idle"
    )
    return _answer(
        not stalled and not failed, {"status": state, "phase": service.phase, "stalled": stalled}
    )


def readyz(ask: Ask) -> Answer:
    """200 while new requests are welcome."""
    service = ask.service
    ready = service.ready()
    return _answer(
        ready,
        {
            "status": "ready" if ready else "not_ready",
            "phase": service.phase,
            "models": _models(service),
        },
    )


def startupz(ask: Ask) -> Answer:
    """200 once every model that gates the server has been ready; until then the phase (H11)."""
    service = ask.service
    started = service.started()
    document: dict[str, object] = {
        "status": "started" if started else "starting",
        "phase": service.phase,
        "uptime_s": round(service.now() - service.started_s, 3),
        "models": _models(service),
    }
    if service.failure:
        document["error"] = service.failure
    return _answer(started, document)


def health(ask: Ask) -> Answer:
    """`/health`: alive and ready in one, as simple probes expect."""
    alive = livez(ask)
    return alive if alive.status != 200 else readyz(ask)


def v2_live(ask: Ask) -> Answer:
    """`GET /v2/health/live`."""
    ok = livez(ask).status == 200
    return _answer(ok, {"live": ok})


def v2_ready(ask: Ask) -> Answer:
    """`GET /v2/health/ready`."""
    ok = ask.service.ready()
    return _answer(ok, {"ready": ok})


def v2_model_ready(ask: Ask) -> Answer:
    """`GET /v2/models/{m}/ready`."""
    served = ask.service.find(ask.params["model"], ask.params.get("version", ""))
    ok = ask.service.phase not in {"draining", "lingering"} and ask.service.model_ready(served)
    return _answer(ok, {"name": served.name, "ready": ok})


def _models(service: Service) -> dict[str, object]:
    found: dict[str, object] = {}
    for served in service.models.values():
        status = served.view.status()
        entry: dict[str, object] = {
            "ready": service.model_ready(served),
            "phase": status.phase,
            "share": round(status.share, 3),
            "detail": status.detail,
            "workers_up": status.workers_up,
            "workers": status.workers,
        }
        if status.error:
            entry["error"] = status.error
        if status.info is not None:
            entry["load_s"] = round(status.info.load_s, 3)
            entry["warmup_s"] = round(status.info.warmup_s, 3)
        found[served.name] = entry
    return found
