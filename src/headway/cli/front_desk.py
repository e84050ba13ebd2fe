"""The front end of one replica: service, meters, addresses for people, the exit code.

Knows how the HTTP room is given its models; must not know how models run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from headway.cli.load_config import Loaded
from headway.cli.model_runtimes import ModelRuntime
from headway.core.ports import ModelInfo
from headway.obs.prometheus import Meters
from headway.server.lifecycle import Replica, serve
from headway.server.service import Served, Service


def say(text: str) -> None:
    """A line for people, on stderr: stdout stays free for programs."""
    print(text, file=sys.stderr, flush=True)


class FrontDesk:
    """Runs the front end and tells its user what is going on."""

    def __init__(self, loaded: Loaded, runtimes: Sequence[ModelRuntime]) -> None:
        self.runtimes = {r.config.name: r for r in runtimes}
        models = {r.config.name: Served(r.config, r.driver, r.monitor) for r in runtimes}
        self.service = Service(
            loaded.config, models, Meters(), _version(), origins=dict(loaded.origins)
        )
        self.replica: Replica | None = None
        self._failed = ""
        self._told = False

    async def serve(self, listening: Callable[[], None]) -> int:
        """Serve until told to stop; returns the exit code. Raises ConfigError if the port is
        taken."""

        def ready(replica: Replica) -> None:
            self.replica = replica
            listening()
            if self._failed:
                replica.fail(self._failed)

        return await serve(self.service, ready=ready, report=say)

    def failed(self, name: str, message: str) -> None:
        """A model will never be ready: the replica leaves with the cause on the last lines."""
        self._failed = self._failed or f"model {name!r} failed to start: {message}"
        if self.replica is not None:
            self.replica.fail(self._failed)

    @property
    def failure(self) -> str:
        """Why the replica could not start; empty when it could."""
        return self._failed

    def all_ready(self) -> bool:
        """Every model can serve; true only once, for the greeting."""
        if self._told or not all(r.driver.ready() for r in self.runtimes.values()):
            return False
        self._told = True
        return True

    def greeting(self) -> list[str]:
        """Lines to copy: URL, a request, metrics, load."""
        assert self.replica is not None
        settings = self.service.config.server
        host = "localhost" if settings.host in {"127.0.0.1", "0.0.0.0", "::"} else settings.host
        root = f"http://{host}:{self.replica.port}"
        lines = [f"ready at {root}  (docs {root}/docs, metrics {root}/metrics)"]
        for name, runtime in self.runtimes.items():
            lines += _example(root, name, runtime.monitor.info, only=len(self.runtimes) == 1)
        return lines


def _example(root: str, name: str, info: ModelInfo | None, *, only: bool) -> list[str]:
    json_header = "-H 'content-type: application/json'"
    if info is not None and info.embeds:
        body = json.dumps({"model": name, "input": "hello"})
        url = f"{root}/v1/embeddings"
        return [
            f"  curl {url} {json_header} -d '{body}'",
            f"  headway load {url} --texts 256 --concurrency 32",
        ]
    url = f"{root}/predict" if only else f"{root}/predict/{name}"
    body = json.dumps(_sample(info.schema_in if info else {}))
    return [
        f"  curl {url} {json_header} -d '{body}'",
        f"  headway load {url} --concurrency 32 --body '{body}'",
    ]


_SAMPLES: dict[str, object] = {
    "string": "text",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [1.0, 2.0],
    "object": {"x": [1.0, 2.0]},
}


def _sample(schema: dict[str, object]) -> object:
    """A body that fits the schema's outer shape; `{"x": [1.0, 2.0]}` where there is none."""
    definitions = schema.get("$defs")
    if isinstance(definitions, dict) and "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        schema = definitions.get(name, {})
    properties = schema.get("properties")
    if isinstance(properties, dict):
        return {key: _sample(value) for key, value in properties.items()}
    items = schema.get("items")
    if isinstance(items, dict):
        return [_sample(items)]
    return _SAMPLES.get(str(schema.get("type")), {"x": [1.0, 2.0]})


def _version() -> str:
    try:
        return version("headway")
    except PackageNotFoundError:
        return "0"
