"""Flags, environment and file become one checked `core.config.Config`, each value with its origin.

Precedence: flag, environment, a model's own entry in the file, the file, default. An unknown key
is an error that names the nearest known one. Knows where values come from; must not read files or
start anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from headway.cli.settings import BY_KEY, MODEL, SERVER, Setting
from headway.core.batcher.sizing import CLASS_ROWS
from headway.core.config import Config, ModelConfig, ServerConfig, validate
from headway.core.errors import ConfigError

DEFAULT = "default"
NOT_SETTINGS = {"HEADWAY_CONFIG"}
"""Environment names that are read elsewhere."""
_SERVICE_LINKS = ("HEADWAY_SERVICE_", "HEADWAY_PORT_")
"""Kubernetes adds these to every pod beside a service named `headway`."""


@dataclass(slots=True)
class Loaded:
    """The effective configuration and where each value came from."""

    config: Config
    origins: dict[str, str] = field(default_factory=dict)
    """By `server.key` or `NAME.key`: flag, environment, file, default, derived ..."""
    warnings: list[str] = field(default_factory=list)
    """Settings that work against each other without being impossible."""


@dataclass(slots=True)
class Sources:
    """Raw values, by key, before they are merged."""

    paths: Sequence[str] = ()
    """MODEL arguments: `path` or `name=path`."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Parsed flags that were given; `NAME.key` for one model."""
    environ: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)
    """The YAML document."""
    file_name: str = ""


def load(sources: Sources) -> Loaded:
    """Merge and check. Raises ConfigError, naming what is wrong and what to change."""
    where = f"file {sources.file_name}" if sources.file_name else "file"
    top, entries = _read_file(sources.file)
    env = _read_environment(sources.environ)
    flags, per_model = _split_flags(sources.flags)
    origins: dict[str, str] = {}

    def merged(part: Iterable[Setting], name: str, own: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        layers = (
            (per_model.get(name, {}), "flag"),
            (flags, "flag"),
            (env, "environment"),
            (own, where),
            (top, where),
        )
        for s in part:
            layer = next(((v, o) for v, o in layers if s.key in v), None)
            value, origin = (s.default, DEFAULT) if layer is None else (layer[0][s.key], layer[1])
            values[s.attr], origins[f"{name}.{s.key}"] = value, origin
        return values

    server = ServerConfig(**merged(SERVER, "server", {}))
    models = []
    for entry, origin in _models(sources.paths, entries, where):
        name = entry["name"]
        if name == "server":
            raise ConfigError("a model cannot be named 'server'", param="name")
        values = merged(MODEL, name, entry)
        values["name"], values["path"] = name, entry["path"]
        origins[f"{name}.path"] = origin
        origins[f"{name}.name"] = where if entry["named"] and origin == where else origin
        models.append(_derive(ModelConfig(**values), origins))
    unknown = set(per_model) - {m.name for m in models}
    if unknown:
        raise _unknown(unknown.pop(), [m.name for m in models], "--set", "model")
    config = Config(server, tuple(models))
    validate(config)
    return Loaded(config, origins, _warnings(config))


def _derive(model: ModelConfig, origins: dict[str, str]) -> ModelConfig:
    """Fill in the policy where none was named."""
    if model.policy is None:
        policy = "deadline" if model.objective else "greedy"
        origins[f"{model.name}.policy"] = "derived from objective" if model.objective else DEFAULT
        return replace(model, policy=policy)
    return model


def _models(
    paths: Sequence[str], entries: Sequence[Mapping[str, Any]], where: str
) -> list[tuple[dict[str, Any], str]]:
    """Every model with its name and path, and whether the line or the file brought it.

    A path on the line that the file also lists keeps the file's entry.
    """
    found: list[tuple[dict[str, Any], str]] = []
    listed = {str(e.get("path", "")): e for e in entries}
    if paths:
        for text in paths:
            name, _, path = text.partition("=") if _is_named(text) else ("", "", text)
            entry = dict(listed.get(path, {}))
            given = name or entry.get("name", "")
            entry |= {"name": given or name_of(path), "path": path, "named": bool(given)}
            found.append((entry, "flag"))
        return found
    for e in entries:
        if not e.get("path"):
            raise ConfigError(
                f"model {e.get('name', '?')!r} has no path",
                param="path",
                hint="models: - path: ...",
            )
        given, path = e.get("name", ""), str(e["path"])
        found.append(({**e, "name": given or name_of(path), "named": bool(given)}, where))
    return found


def _is_named(text: str) -> bool:
    name, sep, path = text.partition("=")
    return bool(sep and path) and name.replace("-", "_").isidentifier()


def name_of(path: str) -> str:
    """The name clients use for a model path: the file's or directory's own name."""
    file = path
    if ":" in path and path.partition(":")[0].endswith(".py"):
        file = path.partition(":")[0]
    pure = PurePath(file.rstrip("/"))
    return (pure.stem if pure.suffix in {".py", ".onnx"} else pure.name) or path


def _read_file(document: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if not isinstance(document, Mapping):
        raise ConfigError("the file is not a mapping of settings", hint="port: 8000")
    top: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    for raw, value in document.items():
        key = str(raw).replace("-", "_")
        if key == "models":
            if not isinstance(value, list | None):
                raise _bad_models()
            entries = [_read_entry(e) for e in value or ()]
        elif key not in BY_KEY:
            raise _unknown(str(raw), [*BY_KEY, "models"], "the file")
        elif not BY_KEY[key].is_flag:
            raise ConfigError(f"{key} belongs to one model", hint="put it under models:", param=key)
        else:
            top[key] = BY_KEY[key].check(value)
    return top, entries


def _read_entry(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"path": entry}
    if not isinstance(entry, Mapping):
        raise _bad_models()
    known = {s.key: s for s in MODEL}
    values: dict[str, Any] = {}
    for raw, value in entry.items():
        key = str(raw).replace("-", "_")
        if key not in known:
            raise _unknown(str(raw), known, f"model {entry.get('name') or entry.get('path')!r}")
        values[key] = known[key].check(value)
    return values


def _bad_models() -> ConfigError:
    hint = "models: [{name: m, path: app.py}]"
    return ConfigError("models is no list of mappings", param="models", hint=hint)


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    known = {s.env: s for s in BY_KEY.values() if s.is_flag}
    for name, text in environ.items():
        if not name.startswith("HEADWAY_") or name in NOT_SETTINGS:
            continue
        if name.startswith(_SERVICE_LINKS) or text.startswith("tcp://"):
            continue
        if name not in known:
            raise _unknown(name, [*known, *NOT_SETTINGS], "the environment")
        values[known[name].key] = known[name].parse(text)
    return values


def _split_flags(flags: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    everyone: dict[str, Any] = {}
    per_model: dict[str, dict[str, Any]] = {}
    known = {s.key: s for s in MODEL if s.is_flag}
    for key, value in flags.items():
        name, dot, own = key.rpartition(".")
        if not dot:
            everyone[key] = value
            continue
        own = own.replace("-", "_")
        if own not in known:
            raise _unknown(own, known, "--set")
        per_model.setdefault(name, {})[own] = known[own].parse(value)
    return everyone, per_model


def _unknown(key: str, known: Iterable[str], where: str, noun: str = "setting") -> ConfigError:
    known = list(known)
    near = get_close_matches(key.replace("-", "_"), known, n=1, cutoff=0.5)
    if not near:
        near = get_close_matches(key.upper(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "headway serve --help lists all"
    return ConfigError(f"unknown {noun} {key!r} in {where}", hint=hint, param=key)


def _warnings(config: Config) -> list[str]:
    found = []
    for m in config.models:
        if m.max_batch_size and config.server.connections_max < m.max_batch_size:
            found.append(
                f"connections_max ({config.server.connections_max}) is below max_batch_size"
                f" ({m.max_batch_size}) of {m.name}: full batches need clients that pipeline"
            )
        rows = CLASS_ROWS[m.weight_class]
        if not m.max_batch_size and m.queue_requests_max < rows:
            found.append(
                f"queue_requests_max ({m.queue_requests_max}) of {m.name} bounds its batches too:"
                f" class {m.weight_class} would allow {rows} rows (max_batch_size)"
            )
        if config.server.live_stall_s < m.run_s_max:
            found.append(
                f"live_stall_s ({config.server.live_stall_s:g}) is below run_s_max"
                f" ({m.run_s_max:g}) of {m.name}: /livez fails while a long batch runs"
            )
    return found
