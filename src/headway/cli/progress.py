"""Progress on stderr: bars on a terminal, one plain line per phase otherwise.

Knows terminals; must not know what progresses. `rich` is imported only for a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

Advance = Callable[[float, str], None]
"""Called with the share that is done and a few words."""


def is_terminal() -> bool:
    """Does a person watch?"""
    return sys.stderr.isatty()


@contextmanager
def bar(title: str, *, shown: bool = True) -> Iterator[Advance]:
    """One bar on a terminal, nothing elsewhere."""
    if not shown or not is_terminal():
        yield lambda share, words: None
        return
    rich_progress = import_module("rich.progress")
    console = import_module("rich.console").Console(stderr=True)
    with rich_progress.Progress(
        "{task.description}",
        rich_progress.BarColumn(),
        rich_progress.TimeElapsedColumn(),
        "{task.fields[words]}",
        console=console,
        transient=True,
    ) as shown_bars:
        task = shown_bars.add_task(title, total=1.0, words="")
        yield lambda share, words: shown_bars.update(task, completed=share, words=words)


class Phases:
    """Start-up phases by model: `import`, `load`, `warmup`, `ready`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start_s = now()
        self._seen: dict[str, tuple[str, float]] = {}
        self._tasks: dict[str, object] = {}
        self._bars = None
        if is_terminal():
            rich_progress = import_module("rich.progress")
            console = import_module("rich.console").Console(stderr=True)
            self._bars = rich_progress.Progress(
                "{task.description}",
                rich_progress.BarColumn(),
                rich_progress.TimeElapsedColumn(),
                "{task.fields[words]}",
                console=console,
                transient=True,
            )
            self._bars.start()

    def report(self, name: str, phase: str, share: float, detail: str) -> None:
        """Where one worker of a model is."""
        before, since_s = self._seen.get(name, ("", self._start_s))
        if self._bars is not None:
            self._draw(name, phase, share, detail)
        if phase == before:
            return
        if before and self._bars is None:
            print(f"{name}: {before} {self._now() - since_s:.2f} s", file=sys.stderr, flush=True)
        self._seen[name] = (phase, self._now())

    def close(self) -> None:
        """Take the bars away."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _draw(self, name: str, phase: str, share: float, detail: str) -> None:
        assert self._bars is not None
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = self._bars.add_task(name, total=1.0, words="")
        words = f"{phase} {detail}".strip()
        self._bars.update(task, completed=1.0 if phase == "ready" else share, words=words)
