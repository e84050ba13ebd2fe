"""One server under test: started, waited for, loaded, weighed and ended.

Knows processes and HTTP's first line; must not know which product it runs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benchmarks.harness.client import Load, Outcome, Running
from benchmarks.harness.process_tree import cpu_s, descendants, pss_mb, started_ticks

_POLL_S = 0.01
_END_S = 8.0


@dataclass(slots=True, kw_only=True)
class Spec:
    """How to start a server and what to ask of it."""

    label: str
    command: list[str]
    port: int
    path: str
    bodies: Path
    """One JSON body a line; the first is the probe."""
    environ: dict[str, str] = field(default_factory=dict)
    start_s_max: float = 120.0
    log: Path = Path(os.devnull)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """A context manager: running and answering inside, gone with all its processes after."""

    def __init__(self, spec: Spec, client: Path) -> None:
        self.spec = spec
        self._client = client
        self._process: subprocess.Popen[bytes] | None = None
        self.start_s = 0.0
        """From the command to the first 200."""

    @property
    def label(self) -> str:
        """Name shown in tables."""
        return self.spec.label

    def __enter__(self) -> Server:
        spec = self.spec
        environ = {**os.environ, **spec.environ}
        with spec.log.open("ab") as log:
            begun = time.monotonic()
            self._process = subprocess.Popen(
                spec.command, env=environ, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait(begun)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def _wait(self, begun: float) -> None:
        assert self._process is not None
        with self.spec.bodies.open() as bodies:
            body = bodies.readline().strip().encode()
        while not answers_200(self.spec.port, self.spec.path, body):
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.label} ended at start: see {self.spec.log}")
            if time.monotonic() - begun > self.spec.start_s_max:
                raise RuntimeError(f"{self.label} gave no answer: see {self.spec.log}")
            time.sleep(_POLL_S)
        self.start_s = time.monotonic() - begun

    def end(self) -> None:
        """Ask it to stop, then make sure of every process it had."""
        process, self._process = self._process, None
        if process is None:
            return
        ours = {pid: started_ticks(pid) for pid in descendants(process.pid)}
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            pass
        for pid, ticks in ours.items():
            # The start time tells our process from a later one with the same number.
            if ticks and started_ticks(pid) == ticks:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        process.wait()

    def begin(self, load: Load) -> Running:
        """Start a load and return at once."""
        spec = self.spec
        return Running(self._client, load.arguments(spec.port, spec.path, str(spec.bodies)))

    def load(self, load: Load) -> Outcome:
        """Run a load to its end."""
        return self.begin(load).outcome()

    def pids(self) -> list[int]:
        """Every process of the server."""
        return descendants(self._process.pid) if self._process else []

    def pss_mb(self) -> float:
        """Memory of all its processes, in MB."""
        return pss_mb(self.pids())

    def cpu_s(self) -> float:
        """Processor time of all its processes so far."""
        return cpu_s(self.pids())


def answers_200(port: int, path: str, body: bytes) -> bool:
    """One POST: did it answer 200?"""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            s.sendall(head.encode() + body)
            return s.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
