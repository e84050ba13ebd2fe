"""The load client: builds `peers/loadgen.c`, runs it, reads its one line.

Knows the client's flags and its JSON; must not know servers or bars.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.harness.environments import cache

SOURCE = Path(__file__).resolve().parents[1] / "peers" / "loadgen.c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send. `rate` 0 is closed loop over `connections`; else Poisson arrivals a second."""

    seconds: float
    connections: int = 0
    rate: float = 0.0
    warm_s: float = 1.0
    timeout_ms: float = 30_000.0
    limit_ms: float = 0.0
    """Answers within this time are counted in `in_limit`; 0 counts all."""
    keep_open: bool = False
    """Open all connections before the first request, whatever the rate."""
    seed: int = 0
    path: str = ""
    """Another path than the server's own."""
    bodies: str = ""
    """Another file of bodies than the server's own."""

    def arguments(self, port: int, path: str, bodies: str) -> list[str]:
        """The client's command line after its name."""
        args = ["-p", str(port), "-u", self.path or path, "-b", self.bodies or bodies]
        args += ["-d", f"{self.seconds:g}", "-w", f"{self.warm_s:g}", "-t", f"{self.timeout_ms:g}"]
        if self.connections:
            args += ["-c", str(self.connections)]
        if self.rate:
            args += ["-r", f"{self.rate:g}"]
        if self.limit_ms:
            args += ["-l", f"{self.limit_ms:g}"]
        if self.seed:
            args += ["-s", str(self.seed)]
        return [*args, "-o"] if self.keep_open else args


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the client counted between warm-up and end. Times are milliseconds; -1 where none."""

    secs: float
    sent: int
    ok: int
    """Requests answered 200, also after the end."""
    rps: float
    """Answers 200 a second, up to the end."""
    p50: float
    p99: float
    max: float
    refused: int
    """Answers that are not 200."""
    ref_p50: float
    ref_p99: float
    in_limit: int
    timeouts: int
    conn_err: int
    reset: int
    lost: int
    open: int
    client_cpu: float
    err: str

    @property
    def in_limit_rps(self) -> float:
        """Answers inside the limit, a second."""
        return self.in_limit / self.secs

    @property
    def all_answered(self) -> bool:
        """Nothing was refused, lost or reset."""
        return self.sent > 0 and self.ok == self.sent

    @classmethod
    def read(cls, line: str) -> Outcome:
        """From the client's line. Raises ValueError when it is not one."""
        raw = json.loads(line)
        try:
            return cls(**{f.name: raw[f.name] for f in fields(cls)})
        except KeyError as e:
            raise ValueError(f"the client's line has no {e}: {line[:200]}") from None


def build() -> Path:
    """The client's binary, compiled once for each version of its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    binary = cache() / f"loadgen-{digest}"
    if not binary.exists():
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("no C compiler for the load client: apt-get install gcc libc6-dev")
        binary.parent.mkdir(parents=True, exist_ok=True)
        draft = binary.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-o", str(draft), str(SOURCE), "-lm"]
        subprocess.run(command, check=True)
        draft.rename(binary)
    return binary


class Running:
    """A load that runs in the background, pinned to the last core where there are several."""

    def __init__(self, binary: Path, arguments: list[str]) -> None:
        cores = os.cpu_count() or 1
        pin = ["taskset", "-c", str(cores - 1)] if cores > 1 and shutil.which("taskset") else []
        self._process = subprocess.Popen(
            [*pin, str(binary), *arguments], stdout=subprocess.PIPE, text=True
        )

    def sleep(self, seconds: float) -> None:
        """Let the load run for a while; returns early when it ends."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def outcome(self) -> Outcome:
        """Wait for the end. Raises RuntimeError when the client failed."""
        line, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"the load client ended with status {self._process.returncode}")
        return Outcome.read(line)
