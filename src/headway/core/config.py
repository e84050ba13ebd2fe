"""Every setting there is: name, unit, default, meaning. Flags, YAML, environment and docs come
from here.

Names end in their unit. Values are validated in one place (`validate`), before anything starts.
Knows nothing of files or environments: `cli.load_config` fills these classes in and remembers each
origin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from headway.core.errors import ConfigError
from headway.core.slo import Objective


def _set(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Settings of one model. All but `name` and `path` are also flags of `headway serve`."""

    name: str = _set("", "name clients use; the file's name unless given", flag=False)
    path: str = _set("", "app.py[:Class], x.onnx, package.module:Class or mock", flag=False)
    weight_class: str = _set(
        "light",
        "starting cap while b* is unknown: light 64, heavy 16",
        key="class",
        choices=("light", "heavy"),
    )
    policy: str | None = _set(
        None,
        "how batches form; deadline where an objective is given, else greedy",
        choices=("greedy", "deadline", "static"),
    )
    max_batch_size: int | None = _set(
        None, "largest number of rows in one batch; measured unless given", low=1
    )
    objective: str = _set("", "latency promise, like 'p99<200ms'")
    batch_window_ms: float = _set(
        100.0, "static policy: how long the oldest request waits for others", low=0
    )
    pad_batches: bool = _set(
        False, "static policy: fill up to max_batch_size with copies, for throughput"
    )
    hold: bool = _set(
        True,
        "greedy: after a reply, hold a partial batch for at most a tenth of the last batch's time",
    )
    padded_sizes: tuple[int, ...] = _set(
        (), "row counts the model can run; a batch is rounded down to a full one, or padded up"
    )
    batch_budget_size: float | None = _set(
        None, "largest padded size of one batch, in the model's size unit", low=0, open=True
    )
    padding_waste_max: float = _set(
        0.15,
        "largest share of padding in one batch while its cost is not yet measured",
        low=0,
        high=1,
    )
    workers: int = _set(1, "worker processes, each with its own copy of the model", low=1)
    device: str = _set("cpu", "models with the same device share it by a compute slot")
    slot_time_ms_max: float = _set(
        20.0, "longest batch while another model waits for the same device", low=0, open=True
    )
    queue_requests_max: int = _set(1024, "requests that may wait", low=1)
    queue_rows_max: int = _set(8192, "rows that may wait", low=1)
    queue_bytes_max: int = _set(256 * 2**20, "body bytes that may wait", low=1)
    queue_size_max: float | None = _set(
        None,
        "sum of sizes that may wait, in the model's size unit (tokens, pixels, bytes)",
        low=0,
        open=True,
    )
    item_size_max: float | None = _set(
        None, "largest single item, in the model's size unit; bigger ones get 413", low=0, open=True
    )
    queue_wait_s_max: float = _set(
        30.0, "longest a request may wait in the queue", low=0, open=True
    )
    timeout_action: str = _set(
        "reject",
        "what happens at queue_wait_s_max: refuse, or serve after everyone still on time",
        choices=("reject", "delay"),
    )
    run_s_max: float = _set(
        60.0, "longest one batch may run before its worker is replaced", low=0, open=True
    )
    stream_gap_s_max: float = _set(
        60.0, "longest silence inside a stream before its worker is replaced", low=0, open=True
    )
    request_s_max: float = _set(0.0, "longest a request may take in all; 0 sets no limit", low=0)
    priority_levels: int = _set(
        2, "priority 1 is highest; 0 or absent means the lowest level", low=1, high=100
    )
    crash_retries: int = _set(
        0, "times a request is run again when its worker dies under it", low=0, high=3
    )
    warmup_s_max: float = _set(10.0, "longest warm-up; it always runs at least one batch", low=0)
    threads: int = _set(1, "compute threads of one worker", low=1)
    restart_backoff_s_max: float = _set(
        30.0, "longest pause before a crashed worker starts again", low=0, open=True
    )
    start_failures_max: int = _set(3, "failed starts in a row before the server gives up", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of the front end: addresses, limits of HTTP, life cycle."""

    host: str = _set("127.0.0.1", "address to listen on; 0.0.0.0 for every interface")
    port: int = _set(8000, "port to listen on; 0 picks a free one", low=0, high=65535)
    body_bytes_max: int = _set(32 * 2**20, "largest request body", low=1)
    header_bytes_max: int = _set(32 * 2**10, "largest request line and headers together", low=256)
    header_s_max: float = _set(
        10.0, "longest a client may take to send its headers", low=0, open=True
    )
    body_gap_s_max: float = _set(
        10.0, "longest silence while a body is being sent", low=0, open=True
    )
    body_rate_bytes_s_min: float = _set(
        1024.0, "slowest body accepted, averaged after body_gap_s_max", low=0
    )
    keep_alive_s: float = _set(75.0, "how long an idle connection is kept", low=0, open=True)
    connections_max: int = _set(4096, "open connections; more are answered 503 and closed", low=1)
    stream_buffer_bytes_max: int = _set(
        2**20, "unsent bytes of one stream whose client does not read, before it is cut", low=1
    )
    loop_lag_s_max: float = _set(
        0.5, "refuse new work while the front end itself runs this late", low=0, open=True
    )
    linger_s: float = _set(
        3.0, "after SIGTERM: keep serving this long while balancers notice (SIGINT skips it)", low=0
    )
    drain_s_max: float = _set(30.0, "longest wait for requests in flight at shutdown", low=0)
    live_stall_s: float = _set(
        60.0, "work pending and no progress for this long: not live", low=0, open=True
    )
    ready_stall_s: float = _set(
        2.0, "a worker that answers no ping for this long: not ready", low=0, open=True
    )
    history_batches: int = _set(256, "recent batches kept for explain", low=0)
    log_level: str = _set(
        "info", "least severe line logged", choices=("debug", "info", "warning", "error")
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole effective configuration of one replica."""

    server: ServerConfig
    models: tuple[ModelConfig, ...]


def key_of(f: Any) -> str:
    """A field's key in YAML, with underscores; flags use dashes and the environment upper case."""
    return str(f.metadata.get("key", f.name))


def validate(config: Config) -> None:
    """Refuse settings that are out of range or contradict each other, naming both (B2, B18).

    Raises ConfigError.
    """
    parts: list[ServerConfig | ModelConfig] = [config.server, *config.models]
    for part in parts:
        for f in fields(part):
            _check_range(key_of(f), getattr(part, f.name), f.metadata)
    if not config.models:
        raise ConfigError(
            "no model to serve", hint="headway serve app.py, or a models: list in --config"
        )
    names = [m.name for m in config.models]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two models are named {name!r}", param="name", hint="give each model its own name"
            )
    for m in config.models:
        _check_model(m)


def _check_range(key: str, value: Any, meta: Any) -> None:
    if value is None:
        return
    if "choices" in meta and value not in meta["choices"]:
        raise ConfigError(
            f"{key} is {value!r}", param=key, hint="one of " + ", ".join(meta["choices"])
        )
    low, high = meta.get("low"), meta.get("high")
    if low is None:
        return
    values = value if isinstance(value, tuple) else (value,)
    for v in values:
        if not v >= low or (meta.get("open") and v <= low) or (high is not None and v > high):
            bound = f"more than {low}" if meta.get("open") else f"at least {low}"
            if high is not None:
                bound += f" and at most {high}"
            raise ConfigError(f"{key} is {v!r}", param=key, hint=f"it must be {bound}")


def _check_model(m: ModelConfig) -> None:
    cap = m.max_batch_size or 1
    for limit in ("queue_requests_max", "queue_rows_max"):
        if getattr(m, limit) < cap:
            raise ConfigError(
                f"{limit} ({getattr(m, limit)}) is below max_batch_size ({cap}):"
                " full batches could never form",
                param=limit,
                hint=f"raise {limit} to at least {cap} or lower max_batch_size",
            )
    if any(s < 1 for s in m.padded_sizes) or list(m.padded_sizes) != sorted(set(m.padded_sizes)):
        raise ConfigError("padded_sizes must be rising whole numbers from 1", param="padded_sizes")
    if m.max_batch_size and m.padded_sizes and m.padded_sizes[0] > m.max_batch_size:
        raise ConfigError(
            f"padded_sizes start at {m.padded_sizes[0]}, above max_batch_size ({m.max_batch_size})",
            param="padded_sizes",
            hint="raise max_batch_size or allow a smaller size",
        )
    _check_idle(m)
    if m.objective:
        Objective.parse(m.objective)


def _check_idle(m: ModelConfig) -> None:
    """Refuse settings that do nothing under the model's policy (B17, B18)."""
    policy = m.policy or ("deadline" if m.objective else "greedy")
    idle: tuple[str, ...] = ("batch_window_ms", "pad_batches")
    wanted = "static"
    if policy == "static":
        idle, wanted = ("hold",), "greedy or deadline"
    defaults = ModelConfig()
    for key in idle:
        if getattr(m, key) != getattr(defaults, key):
            raise ConfigError(
                f"{key} does nothing under policy {policy}",
                param=key,
                hint=f"use policy {wanted}, or remove it",
            )
