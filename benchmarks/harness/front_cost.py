"""What a no-op request costs the front end in its own code, with no socket and no worker.

    python -m benchmarks.harness.front_cost

Bytes go into the server's own protocol over a transport in memory, 32 connections at a time, as
they do when 32 clients come back together. Prints one JSON object: stage -> microseconds a request.
"""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.harness.decide_cost import measure
from headway.core.config import Config, ModelConfig, ServerConfig
from headway.core.events import Event
from headway.core.ports import ModelInfo, ModelStatus
from headway.core.request import ItemResult, Request
from headway.obs.prometheus import Meters
from headway.server.lifecycle import Replica
from headway.server.service import Served, Service

_CONNECTIONS = 32
_TURNS = 2000
_BODY = b'{"x":[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.5]}'
_HEAD = (
    b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(_BODY)
)


class Transport:
    """Takes what is written and forgets it."""

    def write(self, data: bytes) -> None:
        """Nothing is sent."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing is known of the other side."""
        return default

    def is_closing(self) -> bool:
        """Never."""
        return False

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


class Keeper:
    """A runtime that keeps requests until they are answered from outside."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []

    def submit(self, request: Request) -> None:
        """Keep it."""
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Nobody leaves."""

    def ready(self) -> bool:
        """Always."""
        return True

    def saturating_rows(self) -> int:
        """All of them."""
        return _CONNECTIONS

    def drain(self) -> None:
        """Nothing is held."""

    def idle(self) -> bool:
        """Nothing waits between turns."""
        return not self.waiting

    def events(self) -> list[Event]:
        """None: no batch is formed here."""
        return []

    def status(self) -> ModelStatus:
        """One worker, ready."""
        return ModelStatus("ready", True, info=ModelInfo("m"), workers=1, workers_up=1, rows_max=64)


def stages(turns: int = _TURNS) -> dict[str, float]:
    """Microseconds a request, by stage, over that many turns of all connections."""
    keeper = Keeper()
    model = ModelConfig(name="m")
    server = ServerConfig(port=0)
    service = Service(Config(server, (model,)), {"m": Served(model, keeper, keeper)}, Meters(), "0")
    replica = Replica(service)
    lanes = [replica._connection() for _ in range(_CONNECTIONS)]
    for lane in lanes:
        lane.connection_made(Transport())
    message = _HEAD + _BODY
    result = ItemResult(200, b'{"y":36.5}')
    read_s = answer_s = 0.0
    for turn in range(turns + 10):
        begun = time.perf_counter()
        for lane in lanes:
            lane.data_received(message)
        read = time.perf_counter()
        for request in keeper.waiting:
            request.reply.done(result)
        done = time.perf_counter()
        assert len(keeper.waiting) == _CONNECTIONS
        keeper.waiting.clear()
        if turn >= 10:
            read_s += read - begun
            answer_s += done - read
    count = _CONNECTIONS * turns / 1e6
    decided = measure("noop5", 64, batches=turns)
    return {
        "read the request": read_s / count,
        "decide and form batches": decided["us_per_batch"] / decided["mean_rows"],
        "write the answer": answer_s / count,
    }


if __name__ == "__main__":
    print(json.dumps(stages()))
