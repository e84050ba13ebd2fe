"""A benchmark run: options, the servers a row asks for, and alternation between them.

Knows how a row gets a server and how runs are repeated; must not know any row.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from benchmarks.harness.catalog import (
    OTHERS,
    PRODUCTS,
    environ_of,
    headway_command,
    interpreter,
    raw_bodies,
)
from benchmarks.harness.client import Load, build
from benchmarks.harness.rows import number
from benchmarks.harness.server_process import Server, Spec, free_port

T = TypeVar("T")


@dataclass
class Bench:
    """One call of the benchmark."""

    rounds: int = 3
    scale: float = 1.0
    """Multiplies every measuring time: below 1 for a trial, whose numbers count for nothing."""
    all_peers: bool = False
    subject: str = "headway"
    """What stands in Headway's column; another product here tries the benchmark itself."""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="headway-bench-")))

    @cached_property
    def client(self) -> Path:
        """The load client."""
        return build()

    def others(self) -> tuple[str, ...]:
        """Peers that are shown without a bar."""
        return OTHERS if self.all_peers else ()

    def load(self, seconds: float, connections: int = 0, **more: float | bool | str) -> Load:
        """A load of scaled length."""
        seconds = max(0.2, seconds * self.scale)
        return Load(seconds=seconds, connections=connections, **more)  # type: ignore[arg-type]

    def bodies(self, product: str, work: str) -> Path:
        """The file of a product's request bodies, in its own form."""
        path = self.folder / f"{product}.{work}.txt"
        if not path.exists():
            kind = "noop" if work.startswith("noop") else "text"
            plain = self.folder / f"{kind}.txt"
            if not plain.exists():
                plain.write_text("\n".join(raw_bodies(work, interpreter("mosec"))) + "\n")
            wrap = PRODUCTS[product].wrap
            path.write_text("".join(wrap(line) + "\n" for line in plain.read_text().splitlines()))
        return path

    def spec(self, product: str, work: str, *flags: str) -> Spec:
        """How to start a product for a workload; flags are added to Headway's command only."""
        python = interpreter(product)
        port = free_port()
        command = PRODUCTS[product].command(python, work, port)
        return Spec(
            label=product,
            command=[*command, *flags] if product == "headway" else command,
            port=port,
            path=PRODUCTS[product].path,
            bodies=self.bodies(product, work),
            environ=environ_of(product, work, port, python),
            log=self.folder / f"{product}.{work}.log",
        )

    def server(self, product: str, work: str, *flags: str) -> Server:
        """A server to be entered with `with`."""
        return Server(self.spec(product, work, *flags), self.client)

    def headway_apps(self, apps: Sequence[str], path: str, *flags: str) -> Server:
        """Headway with several models, asked at `path`."""
        spec = self.spec("headway", "noop")
        command = headway_command(list(apps), interpreter("headway"), spec.port, *flags)
        spec.command, spec.path = command, path
        return Server(spec, self.client)

    @contextmanager
    def side_by_side(
        self, work: str, *products: str, flags: Sequence[str] = ()
    ) -> Iterator[list[Server]]:
        """Several products up at once, so that runs can alternate; only one is loaded at a time."""
        with ExitStack() as stack:
            servers = []
            for product in products:
                self.say(f"starting {product} for {work}")
                servers.append(stack.enter_context(self.server(product, work, *flags)))
            yield servers

    def alternate(self, servers: Sequence[Server], measure: Callable[[Server], T]) -> list[list[T]]:
        """`rounds` measurements of each server; the order turns. Outer index: server."""
        results: list[list[T]] = [[] for _ in servers]
        order = list(range(len(servers)))
        for _ in range(self.rounds):
            for i in order:
                results[i].append(measure(servers[i]))
            order = order[1:] + order[:1]
        return results

    def say(self, text: str) -> None:
        """Progress, on standard error."""
        print(f"  {text}", file=sys.stderr, flush=True)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(statistics.median(values))


def spread(values: Sequence[float]) -> str:
    """Smallest and largest, for a note."""
    return f"{number(min(values))} to {number(max(values))} in {len(values)} runs"
