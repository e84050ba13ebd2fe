"""The house's rules, checked by parsing every file: layers, imports, sizes, names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headway"
FILES = sorted(p for p in SRC.rglob("*.py"))
NAMES = [str(p.relative_to(SRC)) for p in FILES]
ROOMS = {"executor", "server", "gateway", "sim", "experiments", "kube", "obs"}
CORE_BANNED = {
    "asyncio", "threading", "multiprocessing", "socket", "os", "subprocess", "time", "logging",
}  # fmt: skip
HEAVY = {
    "torch": ("executor/", "sim/train"),
    "transformers": ("executor/", "sim/train"),
    "onnxruntime": ("executor/",),
    "tokenizers": ("executor/",),
    "safetensors": ("executor/",),
    "uvicorn": ("server/",),
    "starlette": ("server/",),
    "grpc": ("gateway/",),
    "kopf": ("kube/",),
    "prometheus_client": ("obs/",),
    "rich": ("cli/",),
    "yaml": ("cli/",),
    "click": ("cli/",),
}
BROAD_EXCEPT = {
    # runtimes: user code may raise anything, and the loop must survive it
    "executor/adapt.py", "executor/items.py", "executor/runner.py", "executor/worker.py",
    "executor/async_worker.py", "executor/worker_io.py", "executor/pool.py",
    "executor/warm.py", "executor/inline.py", "executor/function_batch.py",
    # one route's bug must not take a connection down unanswered
    "server/app.py", "server/exchange.py", "server/fast_lane.py",
}  # fmt: skip
BANNED_NAMES = ("utils", "util", "helper", "helpers", "common", "manager")
LINES_MAX, FUNCTION_MAX, ARGUMENTS_MAX = 400, 60, 6


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def room_of(name: str) -> str:
    return name.split("/", maxsplit=1)[0] if "/" in name else ""


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Absolute names of everything a file imports, TYPE_CHECKING blocks included."""
    package = ["headway", *path.relative_to(SRC).parts[:-1]]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], base]).rstrip(".")
            yield base, node.lineno
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_rooms_import_only_core(path: Path) -> None:
    name = str(path.relative_to(SRC))
    room = room_of(name)
    for module, line in imports(path):
        parts = module.split(".")
        if parts[0] != "headway" or len(parts) < 2:
            continue
        other = parts[1]
        if room == "cli":
            continue
        assert other != "cli", f"{name}:{line} imports cli"
        if room == "core":
            assert other == "core", f"{name}:{line} core imports {module}"
        elif room in ROOMS:
            assert other in {"core", room}, f"{name}:{line} imports its neighbour {module}"
        elif name == "__init__.py":
            assert other in {"core", "executor"}, f"{name}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_core_is_pure(path: Path) -> None:
    name = str(path.relative_to(SRC))
    if room_of(name) != "core":
        return
    allowed = {"numpy", "headway"} | ({"msgspec"} if name.startswith("core/wire/") else set())
    for module, line in imports(path):
        top = module.split(".")[0]
        assert top not in CORE_BANNED, f"{name}:{line} imports {module}"
        assert top in sys.stdlib_module_names or top in allowed, f"{name}:{line} {module}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = f"{node.value.id}.{node.attr}"
            assert node.value.id != "random" or node.attr == "Random", f"{name}: {used}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_facts_policies_machines_in_that_order(path: Path) -> None:
    name = str(path.relative_to(SRC))
    forbidden: tuple[str, ...] = ()
    if name.startswith("core/wire/"):
        forbidden = ("policy", "batcher", "engine", "router", "compare")
    elif name.startswith("core/policy/"):
        forbidden = ("batcher", "engine", "router", "compare")
    elif name.startswith("core/batcher/"):
        forbidden = ("engine", "router", "compare", "wire")
    elif name.startswith("core/") and name.count("/") == 1:
        forbidden = ("policy", "batcher", "engine", "router", "compare", "wire")
    for module, line in imports(path):
        for part in forbidden:
            assert not module.startswith(f"headway.core.{part}"), f"{name}:{line} {module}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_heavy_packages_have_one_home(path: Path) -> None:
    name = str(path.relative_to(SRC))
    for module, line in imports(path):
        homes = HEAVY.get(module.split(".")[0])
        if homes is not None:
            assert name.startswith(homes), f"{name}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_import_inside_a_function(path: Path) -> None:
    name = str(path.relative_to(SRC))
    if name.startswith("cli/cmd_"):
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                lazy = isinstance(inner, ast.Import | ast.ImportFrom)
                assert not lazy, f"{name}:{inner.lineno} imports inside {node.name}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_sizes(path: Path) -> None:
    name = str(path.relative_to(SRC))
    assert len(path.read_text().splitlines()) <= LINES_MAX, f"{name} is too long"
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        assert length <= FUNCTION_MAX, f"{name}:{node.lineno} {node.name} has {length} lines"
        a = node.args
        given = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
        count = len([x for x in given if x not in {"self", "cls"}])
        assert count <= ARGUMENTS_MAX, f"{name}:{node.lineno} {node.name} has {count} arguments"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_global_and_no_broad_except(path: Path) -> None:
    name = str(path.relative_to(SRC))
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.Global), f"{name}:{node.lineno} global"
        if isinstance(node, ast.ExceptHandler) and name not in BROAD_EXCEPT:
            caught = node.type
            broad = caught is None or (
                isinstance(caught, ast.Name) and caught.id in {"Exception", "BaseException"}
            )
            assert not broad, f"{name}:{node.lineno} catches everything"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_file_opens_with_what_it_is(path: Path) -> None:
    if path.name == "__init__.py" and not path.read_text().strip():
        return
    assert ast.get_docstring(tree(path)), f"{path.relative_to(SRC)} has no docstring"


def test_basenames_are_unique_and_shadow_nothing() -> None:
    seen: dict[str, str] = {}
    for path, name in zip(FILES, NAMES, strict=True):
        if path.stem in {"__init__", "__main__"}:
            continue
        assert path.stem not in seen, f"{name} and {seen[path.stem]} share a basename"
        assert path.stem not in sys.stdlib_module_names, f"{name} shadows the standard library"
        assert path.stem not in BANNED_NAMES, f"{name}: say what it is"
        seen[path.stem] = name


def test_no_import_rings() -> None:
    graph: dict[str, set[str]] = {}
    modules = {}
    for path in FILES:
        parts = path.relative_to(SRC).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        modules[path] = ".".join(("headway", *parts))
    known = set(modules.values())
    for path, module in modules.items():
        graph[module] = {m for m, _ in runtime_imports(path) if m in known and m != module}
    state: dict[str, int] = {}

    def visit(module: str, trail: list[str]) -> None:
        state[module] = 1
        for other in sorted(graph[module]):
            ring = " -> ".join([*trail, module, other])
            assert state.get(other) != 1, f"import ring: {ring}"
            if other not in state:
                visit(other, [*trail, module])
        state[module] = 2

    for module in graph:
        if module not in state:
            visit(module, [])


def runtime_imports(path: Path) -> Iterator[tuple[str, int]]:
    """Imports outside TYPE_CHECKING blocks."""
    typing_only = {
        inner
        for node in ast.walk(tree(path))
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    lines = {node.lineno for node in typing_only}
    return ((m, line) for m, line in imports(path) if line not in lines)
