"""The effective configuration as text: every setting, its value, unit and origin.

Knows how to print one; must not know how it was loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headway.cli.load_config import Loaded
from headway.cli.settings import MODEL, SERVER, Setting
from headway.core.batcher.sizing import CLASS_ROWS

_WIDTH = 44


def as_yaml(loaded: Loaded) -> str:
    """YAML that `--config` reads back, with unit, origin and meaning as comments."""
    config = loaded.config
    lines = [
        "# Effective configuration. Origins: flag, environment, file, default, derived, measured."
    ]
    for s in SERVER:
        lines.append(_line("", s, getattr(config.server, s.attr), loaded, "server"))
    lines.append("models:")
    for m in config.models:
        mark = "  - "
        for s in MODEL:
            lines.append(_line(mark, s, getattr(m, s.attr), loaded, m.name))
            mark = "    "
    return "\n".join(lines) + "\n"


def as_json(loaded: Loaded) -> str:
    """The same for programs: `{"server": {key: {value, unit, origin}}, "models": {name: ...}}`."""
    config = loaded.config
    document = {
        "server": {s.key: _entry(s, config.server, loaded, "server") for s in SERVER},
        "models": {
            m.name: {s.key: _entry(s, m, loaded, m.name) for s in MODEL} for m in config.models
        },
        "warnings": loaded.warnings,
    }
    return json.dumps(document, indent=2)


def _entry(s: Setting, part: Any, loaded: Loaded, name: str) -> dict[str, Any]:
    value = getattr(part, s.attr)
    entry = {"value": value, "unit": s.unit, "origin": loaded.origins[f"{name}.{s.key}"]}
    note = _note(s, value, part)
    return entry | ({"note": note} if note else {})


def _line(mark: str, s: Setting, value: Any, loaded: Loaded, name: str) -> str:
    text = f"{mark}{s.key}: {_scalar(value)}"
    part = next((m for m in loaded.config.models if m.name == name), loaded.config.server)
    origin = loaded.origins[f"{name}.{s.key}"]
    note = _note(s, value, part)
    words = [w for w in (s.unit, origin, note) if w]
    return f"{text:<{_WIDTH}} # {'; '.join(words)}"


def _note(s: Setting, value: Any, part: Any) -> str:
    """What stands in for a value that is worked out while serving."""
    if s.key == "max_batch_size" and value is None:
        rows = CLASS_ROWS[part.weight_class]
        return f"starts at {rows} (class {part.weight_class}), then measured"
    return ""


def _scalar(value: Any) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value))
    if (
        isinstance(value, str)
        and value
        and value.replace("_", "").isalnum()
        and not (value.isdigit() or value.lower() in _WORDS)
    ):
        return value
    return json.dumps(value)


_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "none"}


def origins_line(loaded: Loaded) -> Iterator[str]:
    """Settings that differ from their default, as `name.key=value (origin)`."""
    parts: list[tuple[str, Any, tuple[Setting, ...]]] = [("server", loaded.config.server, SERVER)]
    parts += [(m.name, m, MODEL) for m in loaded.config.models]
    for name, part, settings in parts:
        for s in settings:
            origin = loaded.origins[f"{name}.{s.key}"]
            if origin != "default" and s.is_flag:
                yield f"{name}.{s.key}={getattr(part, s.attr)} ({origin})"
