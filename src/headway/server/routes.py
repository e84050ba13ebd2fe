"""Every route there is, in one table.

Knows paths and which function answers them; must not know transports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headway.core.errors import UserError
from headway.core.wire.problem import Answer, Dialect
from headway.server import (
    docs_page,
    routes_debug,
    routes_health,
    routes_oip,
    routes_openai,
    routes_plain,
)
from headway.server.exchange import Exchange
from headway.server.service import HotRoute, Served, Service


@dataclass(slots=True)
class Ask:
    """One request for a document: no body, answered at once."""

    service: Service
    params: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)

    def models(self) -> list[Served]:
        """All models."""
        return list(self.service.models.values())


Get = Callable[[Ask], Answer]

GETS: dict[str, Get] = {
    "/": docs_page.index,
    "/docs": docs_page.docs,
    "/openapi.json": docs_page.openapi,
    "/health": routes_health.health,
    "/livez": routes_health.livez,
    "/readyz": routes_health.readyz,
    "/startupz": routes_health.startupz,
    "/metrics": routes_debug.metrics,
    "/debug/config": routes_debug.config,
    "/debug/batches": routes_debug.batches,
    "/debug/state": routes_debug.state,
    "/v1/models": routes_openai.models,
    "/v1/models/{model}": routes_openai.model,
    "/v2": routes_oip.server_metadata,
    "/v2/health/live": routes_health.v2_live,
    "/v2/health/ready": routes_health.v2_ready,
    "/v2/models/stats": routes_oip.stats,
    "/v2/models/{model}": routes_oip.model_metadata,
    "/v2/models/{model}/ready": routes_health.v2_model_ready,
    "/v2/models/{model}/stats": routes_oip.stats,
    "/v2/models/{model}/versions/{version}": routes_oip.model_metadata,
    "/v2/models/{model}/versions/{version}/ready": routes_health.v2_model_ready,
    "/v2/models/{model}/versions/{version}/stats": routes_oip.stats,
}

Post = Callable[[Exchange], None]

POSTS: dict[str, tuple[str, Dialect, Post]] = {
    "/predict": ("predict", Dialect.PLAIN, routes_plain.predict),
    "/predict/{model}": ("predict", Dialect.PLAIN, routes_plain.predict),
    "/v1/embeddings": ("embeddings", Dialect.OPENAI, routes_openai.embeddings),
    "/v2/models/{model}/infer": ("infer", Dialect.OIP, routes_oip.infer),
    "/v2/models/{model}/versions/{version}/infer": ("infer", Dialect.OIP, routes_oip.infer),
}


def dialect_of(path: str) -> Dialect:
    """The error shape of a path, also of one that does not exist."""
    if path == "/v1" or path.startswith("/v1/"):
        return Dialect.OPENAI
    return Dialect.OIP if path == "/v2" or path.startswith("/v2/") else Dialect.PLAIN


def match(pattern: str, path: str) -> dict[str, str] | None:
    """The path's parameters under a pattern, or None. A parameter is one non-empty segment."""
    wanted, given = pattern.split("/"), path.split("/")
    if len(wanted) != len(given):
        return None
    params: dict[str, str] = {}
    for want, got in zip(wanted, given, strict=True):
        if want[:1] == "{" and got:
            params[want[1:-1]] = got
        elif want != got:
            return None
    return params


@dataclass(slots=True)
class Found:
    """What a path leads to: a document, a hot route, or both methods' names for a 405."""

    get: Get | None = None
    hot: HotRoute | None = None
    params: dict[str, str] = field(default_factory=dict)


def find(service: Service, path: str) -> Found:
    """Look a path up. Raises UserError 404 for a path or model that does not exist."""
    path = path.rstrip("/") or "/"
    found = Found()
    for pattern, get in GETS.items():
        params = match(pattern, path)
        if params is not None:
            found.get, found.params = get, params
            break
    for pattern, (label, dialect, handle) in POSTS.items():
        params = match(pattern, path)
        if params is not None:
            found.hot = _hot(service, label, dialect, handle, params)
            break
    if found.get is None and found.hot is None:
        raise UserError(404, "not_found", f"no route {path}", hint="GET /docs lists the routes")
    return found


def _hot(
    service: Service, label: str, dialect: Dialect, handle: Post, params: dict[str, str]
) -> HotRoute:
    served = None
    if "model" in params:
        served = service.find(params["model"], params.get("version", ""))
    elif label == "predict":
        served = service.only()
    return HotRoute(label, dialect, handle, served)


def hot_table(service: Service) -> dict[bytes, HotRoute]:
    """The exact targets the fast lane serves without looking anything up."""
    table: dict[bytes, HotRoute] = {}
    for pattern, (label, dialect, handle) in POSTS.items():
        if "{version}" in pattern:
            continue
        if "{model}" not in pattern:
            if label != "predict" or len(service.models) == 1:
                table[pattern.encode()] = _hot(service, label, dialect, handle, {})
            continue
        for name in service.models:
            target = pattern.replace("{model}", name).encode()
            table[target] = _hot(service, label, dialect, handle, {"model": name})
    return table
