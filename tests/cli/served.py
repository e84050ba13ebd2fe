"""A running `headway serve`, and plain requests to it, for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import headway

ROOT = Path(__file__).resolve().parents[2]
SOURCE = str(Path(headway.__file__).parents[1])
URL = re.compile(r"ready at (http://\S+)")
START_S = 30.0
HEADWAY = [sys.executable, "-m", "headway.cli.main"]


def environment() -> dict[str, str]:
    """The environment without settings of ours, and this source tree first."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")} | {
        "PYTHONPATH": SOURCE
    }


class Server:
    """A running `headway serve` and what it said on stderr."""

    def __init__(self, *args: str, cwd: Path = ROOT) -> None:
        self.process = subprocess.Popen(
            [*HEADWAY, "serve", *args, "--port", "0"],
            cwd=cwd,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()

    def until(self, pattern: re.Pattern[str] = URL) -> str:
        """The first group of the first line that matches: the URL unless asked otherwise."""

        def found() -> re.Match[str] | None:
            return next((m for m in map(pattern.search, self.lines) if m), None)

        with self._news:
            self._news.wait_for(found, START_S)
            match = found()
        assert match is not None, "\n".join(self.lines)
        return match[1]

    def end(self, number: int = signal.SIGINT) -> int:
        """Signal it, wait, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(START_S)
        self._reader.join(5)
        return code

    def kill(self) -> None:
        """End it whatever it does."""
        self.process.kill()
        self.process.wait()


def post(url: str, document: Any) -> tuple[int, Any]:
    """POST JSON: status and answer."""
    request = urllib.request.Request(
        url, json.dumps(document).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def get(url: str) -> Any:
    """GET JSON."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def worker_of(server: Server) -> int:
    """The process id of the server's one worker."""
    pid = server.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
