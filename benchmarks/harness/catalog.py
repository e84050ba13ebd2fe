"""The servers there are to compare, and how each is started with the same knobs.

Knows commands, paths and request forms; must not know rows or bars. All knobs that the products
share are equal: batch of 32, one worker, one compute thread, a wait of 3 ms where it is a knob.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.environments import REPOSITORY, python_of

BENCHMARKS = REPOSITORY / "benchmarks"
PEERS = BENCHMARKS / "peers"
MAX_BATCH = 32
MAX_WAIT_MS = 3
WORKS = ("noop", "noop5", "embed", "torch")
"""A no-op; a no-op that sleeps 5 ms a batch; the int8 ONNX encoder; the bf16 torch encoder."""
_APPS = {
    "noop": "benchmarks/apps/noop.py",
    "noop5": "benchmarks/apps/noop.py",
    "embed": "benchmarks/apps/embed_int8.py",
    "torch": "examples/embed_torch.py",
}


def plain(body: str) -> str:
    """The body as it is."""
    return body


def in_items(body: str) -> str:
    """BentoML's form of a batchable call."""
    return json.dumps({"items": [json.loads(body)]})


def in_tensors(body: str) -> str:
    """KServe v2 tensors: Triton takes nothing else."""
    raw: dict[str, Any] = json.loads(body)
    if "x" in raw:
        tensor = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": raw["x"]}
    else:
        tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": [raw["text"]]}
    return json.dumps({"inputs": [tensor]})


@dataclass(frozen=True, slots=True)
class Product:
    """One server."""

    environment: str
    command: Callable[[str, str, int], list[str]]
    """(interpreter, work, port) -> command line."""
    path: str
    wrap: Callable[[str], str] = plain
    max_batch: int = MAX_BATCH
    max_wait_ms: int = MAX_WAIT_MS


def headway_command(apps: list[str], python: str, port: int, *flags: str) -> list[str]:
    """`headway serve`, from the source tree."""
    serve = [python, "-m", "headway.cli.main", "serve", *(str(a) for a in apps)]
    return [*serve, "--port", str(port), "--log-level", "warning", *flags]


def _headway(python: str, work: str, port: int) -> list[str]:
    # Only the no-op rows name a batch size: it is part of their ideal (32 / 5 ms = 6,400/s). The
    # embed rows run with default settings; workers and threads are 1 by default.
    flags = ["--max-batch-size", str(MAX_BATCH)] if work.startswith("noop") else []
    return headway_command([str(REPOSITORY / _APPS[work])], python, port, *flags)


def _script(name: str) -> Callable[[str, str, int], list[str]]:
    return lambda python, _work, _port: [python, str(PEERS / name)]


def _bento(python: str, _work: str, port: int) -> list[str]:
    bento = [str(Path(python).parent / "bentoml"), "serve", "bento_server:Svc"]
    return [*bento, "--port", str(port), "--host", "127.0.0.1", "--working-dir", str(PEERS)]


PRODUCTS: dict[str, Product] = {
    "headway": Product("headway", _headway, "/predict"),
    "mosec": Product("mosec", _script("mosec_server.py"), "/inference"),
    "mosec-off": Product(
        "mosec", _script("mosec_server.py"), "/inference", max_batch=1, max_wait_ms=0
    ),
    "litserve": Product("litserve", _script("litserve_server.py"), "/predict"),
    "bento": Product("bento", _bento, "/predict", in_items),
    "ray": Product("ray", _script("ray_server.py"), "/"),
    "pytriton": Product("pytriton", _script("triton_server.py"), "/v2/models/m/infer", in_tensors),
}
OTHERS = ("litserve", "bento", "ray", "pytriton")
"""What PEERS=all adds."""


def environ_of(product: str, work: str, port: int, python: str) -> dict[str, str]:
    """Environment variables of a server: the knobs, and where the shared model code lies."""
    p = PRODUCTS[product]
    found = [str(REPOSITORY / "src"), str(PEERS)]
    environ = {
        "PORT": str(port),
        "WORKLOAD": {"embed": "embed", "torch": "torch"}.get(work, "noop"),
        "NOOP_SLEEP_MS": "5" if work == "noop5" else "0",
        "MAX_BATCH": str(p.max_batch),
        "MAX_WAIT_MS": str(p.max_wait_ms),
        "PYTHONPATH": ":".join(found),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    if p.environment == "pytriton":
        # Its stub process must load the libpython that belongs to this standard library.
        ask = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
        environ["LD_LIBRARY_PATH"] = done.stdout.strip()
    return environ


def interpreter(product: str) -> str:
    """The interpreter of a product's environment, made on first use."""
    return python_of(PRODUCTS[product].environment)


def raw_bodies(work: str, python: str, count: int = 2000) -> list[str]:
    """Request bodies of a workload: one for the no-op, texts of 5 to 199 tokens otherwise."""
    if work.startswith("noop"):
        return ['{"x":[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.5]}']
    command = [python, str(PEERS / "workload.py"), "bodies", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"{count} texts drawn", file=sys.stderr)
    return done.stdout.splitlines()
