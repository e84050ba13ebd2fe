"""What is imported is declared: the base set, and each extra for the files that need it."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from tests.tidy.test_layers import FILES, NAMES, ROOT, imports

from headway.cli import machine_report

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {"PyYAML": "yaml"}
"""Distributions whose module has another name."""
EXTRA_OF = {
    "executor/onnx_model.py": "onnx",
    "executor/nets/": "torch",
}
"""Files that only run where an extra is installed."""


def modules(requirements: list[str]) -> set[str]:
    names = (re.split(r"[<>=\[;~! ]", r)[0] for r in requirements)
    return {MODULES.get(name, name).replace("-", "_").lower() for name in names}


BASE = modules(PROJECT["dependencies"])
EXTRAS = {k: modules(v) for k, v in PROJECT["optional-dependencies"].items()}


def third_party(path: Path) -> set[str]:
    tops = {module.split(".")[0] for module, _ in imports(path)}
    return {t for t in tops if t not in sys.stdlib_module_names and t != "headway"}


@pytest.mark.parametrize(("path", "name"), list(zip(FILES, NAMES, strict=True)), ids=NAMES)
def test_every_import_is_declared(path: Path, name: str) -> None:
    extra = next((e for start, e in EXTRA_OF.items() if name.startswith(start)), None)
    allowed = BASE | (EXTRAS[extra] if extra else set())
    assert third_party(path) <= allowed, f"{name} imports what pyproject.toml does not declare"


def test_every_base_dependency_is_used() -> None:
    used = set().union(*map(third_party, FILES))
    # uvicorn loads its parser and cli the loop: named in the source, not all imported by us.
    assert used >= BASE - {"httptools"}
    assert any("httptools" in path.read_text() for path in FILES)


def test_doctor_lists_what_is_declared() -> None:
    assert modules(list(machine_report.BASE)) == BASE
    for extra, names in machine_report.EXTRAS.items():
        assert modules(list(names)) == EXTRAS[extra]


def test_constraints_pin_what_is_declared() -> None:
    pinned = modules((ROOT / "constraints.txt").read_text().splitlines())
    assert BASE.union(*EXTRAS.values()) <= pinned
