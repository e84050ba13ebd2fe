"""Memory and processor time of a process and all its descendants, from /proc.

Knows Linux's files; must not know what the processes are. A process that ends while it is being
read counts as nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def descendants(root: int, proc: Path = PROC) -> list[int]:
    """The process and everything under it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            fields = _stat(entry)
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, i = [root], 0
    while i < len(found):
        found += sorted(children.get(found[i], []))
        i += 1
    return found


def pss_mb(pids: list[int], proc: Path = PROC) -> float:
    """Proportional set size in MB (10^6 bytes): shared pages count once over all processes."""
    total = 0
    for pid in pids:
        try:
            lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6


def cpu_s(pids: list[int], proc: Path = PROC) -> float:
    """User and system time of the processes so far, in seconds."""
    ticks = 0
    for pid in pids:
        fields = _stat(proc / str(pid))
        if fields:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def user_and_kernel_s(pid: int, proc: Path = PROC) -> tuple[float, float]:
    """One process's own code and the kernel on its behalf, so far, in seconds; zeros when gone."""
    fields = _stat(proc / str(pid))
    if not fields:
        return 0.0, 0.0
    return int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S


def started_ticks(pid: int, proc: Path = PROC) -> int:
    """When a process started, in ticks since boot; 0 when it is gone."""
    fields = _stat(proc / str(pid))
    return int(fields[19]) if fields and fields[0] != "Z" else 0


def _stat(entry: Path) -> list[str]:
    """Fields after the process name: state, parent, ...; empty when the process is gone."""
    try:
        return (entry / "stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []
