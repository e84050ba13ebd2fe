"""`/docs` and `/openapi.json`: the API as this server's models define it.

Knows routes and the schemas that workers reported; must not need the network (no script or style
from elsewhere).
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import json

from headway.core.wire.problem import Answer, json_answer

if TYPE_CHECKING:
    from headway.core.ports import ModelInfo
    from headway.server.routes import Ask

_ERROR = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
    },
}

_DOCUMENTS = {
    "/livez": "Alive: 503 when work is pending and nothing moves",
    "/readyz": "Ready: 503 while requests should go elsewhere",
    "/startupz": "Started: 503 with the phase until every model has been ready",
    "/health": "Alive and ready in one",
    "/metrics": "Metrics in Prometheus' text format",
    "/debug/config": "The effective configuration with origins",
    "/debug/batches": "Recent batches and why each closed",
    "/debug/state": "Phases, queues, workers, measured service curve",
    "/v1/models": "Models in OpenAI's shape",
    "/v2": "Server metadata (Open Inference Protocol)",
    "/v2/health/live": "Alive (Open Inference Protocol)",
    "/v2/health/ready": "Ready (Open Inference Protocol)",
}

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1c2430;background:#fff}pre{background:#f2f4f7;padding:.8rem;overflow:auto}"
    "td{padding:.15rem 1rem .15rem 0;vertical-align:top}code{font-size:.95em}"
    "@media(prefers-color-scheme:dark){body{color:#dde3ea;background:#14181d}"
    "pre{background:#1e242c}a{color:#8ab4f8}}"
)


def index(ask: Ask) -> Answer:
    """`GET /`: where to look next."""
    return json_answer(
        {
            "name": "headway",
            "version": ask.service.version,
            "models": list(ask.service.models),
            "docs": "/docs",
            "metrics": "/metrics",
            "ready": "/readyz",
        }
    )


def openapi(ask: Ask) -> Answer:
    """`GET /openapi.json`."""
    paths: dict[str, Any] = {
        path: {"get": {"summary": text, "responses": {"200": {"description": "as described"}}}}
        for path, text in _DOCUMENTS.items()
    }
    for path, served_path, info in _model_paths(ask):
        paths[path] = {"post": _operation(served_path, info)}
    paths["/v1/embeddings"] = {"post": _embeddings()}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "headway", "version": ask.service.version or "0"},
        "paths": paths,
        "components": {"schemas": {"Problem": _ERROR}},
    }
    return json_answer(document)


def docs(ask: Ask) -> Answer:
    """`GET /docs`: one page, readable without a network."""
    host = f"http://localhost:{ask.service.config.server.port}"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>headway</title>",
        '<meta name=viewport content="width=device-width">',
        f"<style>{_STYLE}</style><h1>headway {escape(ask.service.version)}</h1>",
    ]
    for path, _, info in _model_paths(ask):
        parts.append(f"<h2><code>POST {escape(path)}</code></h2>")
        parts.append(f"<pre>{escape(_curl(host, path, info))}</pre>")
        for title, schema in (("Body", info.schema_in), ("Answer", info.schema_out)):
            if schema:
                text = json.format(json.encode(schema), indent=2).decode()
                parts.append(f"<h3>{title}</h3><pre>{escape(text)}</pre>")
    rows = "".join(
        f'<tr><td><a href="{path}"><code>{path}</code></a><td>{escape(text)}'
        for path, text in _DOCUMENTS.items()
    )
    parts.append(f"<h2>Documents</h2><table>{rows}</table>")
    parts.append('<p>The same as <a href="/openapi.json">OpenAPI</a>.')
    return Answer(200, "".join(parts).encode(), "text/html; charset=utf-8")


def _model_paths(ask: Ask) -> list[tuple[str, str, ModelInfo]]:
    found = []
    for served in ask.models():
        info = served.view.info or ask.service.empty_info
        found.append((f"/predict/{served.name}", served.name, info))
        found.append((f"/v2/models/{served.name}/infer", served.name, info))
    if len(found) == 2:
        found.insert(0, ("/predict", found[0][1], found[0][2]))
    return found


def _operation(name: str, info: ModelInfo) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    texts = {
        "400": "malformed",
        "413": "too large",
        "422": "this item failed",
        "429": "queue full, or predicted late",
        "503": "not ready",
        "504": "time-out",
    }
    return {
        "summary": f"Run {name}",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": info.schema_in}},
        },
        "responses": {
            "200": {
                "description": "the result",
                "content": {"application/json": {"schema": info.schema_out}},
            },
            **{code: {"description": text, "content": problem} for code, text in texts.items()},
        },
    }


def _embeddings() -> dict[str, Any]:
    text_or_ids = {"oneOf": [{"type": "string"}, {"type": "array"}]}
    schema = {
        "type": "object",
        "required": ["input"],
        "properties": {
            "input": text_or_ids,
            "model": {"type": "string"},
            "encoding_format": {"enum": ["float", "base64"]},
            "dimensions": {"type": "integer"},
        },
    }
    return {
        "summary": "Embed texts (OpenAI)",
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "vectors in the order of the inputs"}},
    }


def _curl(host: str, path: str, info: ModelInfo) -> str:
    body: Any = _sample(info.schema_in)
    if path.startswith("/v2/"):
        body = {
            "inputs": [
                {
                    "name": t.name,
                    "shape": [abs(d) for d in t.shape],
                    "datatype": t.datatype,
                    "data": [],
                }
                for t in info.inputs
            ]
        }
    return (
        f"curl {host}{path} -H 'content-type: application/json' \\\n"
        f"  -d '{json.encode(body).decode()}'"
    )


def _sample(schema: dict[str, Any]) -> Any:
    """Some value of a schema: its example or default, else the emptiest that fits."""
    for key in ("example", "default", "const"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    empty = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "array": []}
    if schema.get("type") in empty:
        return empty[schema["type"]]
    return {name: _sample(part) for name, part in schema.get("properties", {}).items()}
