"""What a setting is, read from the dataclasses of `core.config`: key, kind, unit, parser.

Flags, environment names, YAML and the reference page all come from here. Knows types and texts;
must not know where a value came from.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from headway.core.config import ModelConfig, ServerConfig, key_of
from headway.core.errors import ConfigError

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_NONE = {"", "none", "null"}
_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_UNITS = (
    ("_bytes_s", "bytes/s"),
    ("_bytes", "bytes"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_rows", "rows"),
    ("_requests", "requests"),
    ("_batches", "batches"),
    ("_sizes", "rows"),
)
_OWN_UNITS = {
    "max_batch_size": "rows",
    "batch_budget_size": "size units",
    "queue_size_max": "size units",
    "item_size_max": "size units",
    "padding_waste_max": "share",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a configuration dataclass, as people meet it."""

    part: str
    """`server` or `model`."""
    attr: str
    """The dataclass field."""
    key: str
    """The key in YAML; the flag is the same with dashes."""
    kind: type
    """int, float, str or bool; of the elements where `many`."""
    many: bool
    """A tuple: comma separated on the command line, a list in YAML."""
    optional: bool
    """None is a value."""
    default: Any
    help: str
    choices: tuple[str, ...]
    low: float | None
    high: float | None
    above: bool
    """The lower bound itself is not allowed."""
    is_flag: bool

    @property
    def flag(self) -> str:
        """`--max-batch-size`."""
        return "--" + self.key.replace("_", "-")

    @property
    def env(self) -> str:
        """`HEADWAY_MAX_BATCH_SIZE`."""
        return "HEADWAY_" + self.key.upper()

    @property
    def unit(self) -> str:
        """The unit its name ends in, in words; empty where it has none."""
        if self.key in _OWN_UNITS:
            return _OWN_UNITS[self.key]
        if self.kind is bool:
            return ""
        name = self.key.removesuffix("_max").removesuffix("_min")
        return next((unit for ending, unit in _UNITS if name.endswith(ending)), "")

    def parse(self, text: str) -> Any:
        """A value from a flag or the environment. Raises ConfigError."""
        if self.optional and text.strip().lower() in _NONE:
            return None
        if self.many:
            parts = [p.strip() for p in text.split(",")]
            return tuple(self._one(p) for p in parts if p)
        return self._one(text)

    def check(self, value: Any) -> Any:
        """A value from YAML, which has types already. Raises ConfigError."""
        if value is None and self.optional:
            return None
        if self.many:
            values = value if isinstance(value, list | tuple) else [value]
            return tuple(self._typed(v) for v in values)
        return self._typed(value)

    def _one(self, text: str) -> Any:
        word = text.strip().lower()
        if self.kind is bool:
            if word in _TRUE or word in _FALSE:
                return word in _TRUE
            raise self._wrong(text)
        if self.kind is str:
            return text
        try:
            return self.kind(text)
        except ValueError:
            raise self._wrong(text) from None

    def _typed(self, value: Any) -> Any:
        if self.kind is bool or isinstance(value, bool):
            if self.kind is bool and isinstance(value, bool):
                return value
            raise self._wrong(value)
        if self.kind is float and isinstance(value, int | float):
            return float(value)
        if isinstance(value, self.kind):
            return value
        raise self._wrong(value)

    def _wrong(self, value: Any) -> ConfigError:
        many = " (comma separated)" if self.many else ""
        return ConfigError(
            f"{self.key} is {value!r}", param=self.key, hint=f"it must be {_KINDS[self.kind]}{many}"
        )


def _settings(part: str, cls: type) -> tuple[Setting, ...]:
    hints = get_type_hints(cls)
    found = []
    for f in fields(cls):
        kind, optional, many = hints[f.name], False, False
        if get_origin(kind) is UnionType:
            optional = NoneType in get_args(kind)
            kind = next(a for a in get_args(kind) if a is not NoneType)
        if get_origin(kind) is tuple:
            many, kind = True, get_args(kind)[0]
        assert kind in _KINDS, f"{cls.__name__}.{f.name} has a type no flag can have"
        meta = f.metadata
        found.append(
            Setting(
                part,
                f.name,
                key_of(f),
                kind,
                many,
                optional,
                f.default,
                meta["help"],
                tuple(meta.get("choices", ())),
                meta.get("low"),
                meta.get("high"),
                bool(meta.get("open", False)),
                meta.get("flag", True),
            )
        )
    return tuple(found)


SERVER = _settings("server", ServerConfig)
MODEL = _settings("model", ModelConfig)
BY_KEY = {s.key: s for s in (*SERVER, *MODEL)}
