"""`headway serve MODEL...`: where the rooms meet.

Configuration, worker pool, batch driver, front end and meters become one process here. Knows how
they fit together and in which order they start; must not decide anything they decide.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.cli.load_config import Loaded, Sources, load
from headway.cli.settings import MODEL, SERVER, Setting
from headway.core.config import ModelConfig
from headway.core.errors import ConfigError

if TYPE_CHECKING:
    from headway.cli.front_desk import FrontDesk

_GC_THRESHOLDS = (50_000, 20, 100)
"""Allocations between collections of the front end; it makes next to no cycles."""


def _option(s: Setting) -> click.Option:
    """The flag of one setting."""
    text = s.help + (f" [{s.unit}]" if s.unit else "")
    default = ",".join(map(str, s.default)) if s.many else s.default
    text += f"  (default: {default})" if default not in (None, "") else ""
    if s.kind is bool:
        off = "--no-" + s.key.replace("_", "-")
        return click.Option([f"{s.flag}/{off}", s.key], default=None, help=text)
    metavar = "|".join(s.choices) or ("LIST" if s.many else s.kind.__name__.upper())
    return click.Option([s.flag, s.key], default=None, metavar=metavar, help=text)


def _params() -> list[click.Parameter]:
    return [
        click.Argument(["paths"], nargs=-1, metavar="MODEL..."),
        click.Option(
            ["--config", "config_file"],
            envvar="HEADWAY_CONFIG",
            metavar="FILE",
            help="YAML file; its keys are the flags' names.",
        ),
        click.Option(
            ["--set", "sets"],
            multiple=True,
            metavar="NAME.KEY=VALUE",
            help="A setting of one model only; repeatable.",
        ),
        click.Option(
            ["--print-config"], is_flag=True, help="Print every setting with its origin, and exit."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="With --print-config: as JSON."),
        *(_option(s) for s in (*MODEL, *SERVER) if s.is_flag),
    ]


def run(**given: Any) -> int:
    """The verb."""
    loaded = load(
        Sources(
            paths=given["paths"],
            flags=_flags(given),
            environ=os.environ,
            file=_read_yaml(given["config_file"]),
            file_name=given["config_file"] or "",
        )
    )
    if given["print_config"]:
        _print_config(loaded, as_json=given["as_json"])
        return 0
    _check_files(loaded.config.models)
    for text in loaded.warnings:
        click.echo(f"warning: {text}", err=True)
    # Only now the event loop and everything that serves: --help and --print-config stay fast.
    import uvloop

    logging.basicConfig(
        level=loaded.config.server.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    return uvloop.run(_serve(loaded))


async def _serve(loaded: Loaded) -> int:
    """Workers first, then the front end; whatever the ending, no worker is left."""
    from headway.cli import model_runtimes
    from headway.cli.progress import Phases

    desk: FrontDesk | None = None
    failed: list[tuple[str, str]] = []

    def on_phase(model: ModelConfig, worker: int, phase: str, share: float, detail: str) -> None:
        label = model.name if model.workers == 1 else f"{model.name}/{worker}"
        if phase == "failed":
            failed.append((model.name, detail))
            if desk is not None:
                desk.failed(model.name, detail)
            return
        phases.report(label, phase, share, detail)
        greet()

    def greet() -> None:
        if desk is not None and desk.replica is not None and desk.all_ready():
            # What is here now stays: without it, and with rarer sweeps, collections are short
            # (p99 of a no-op a quarter lower; benchmarks, "what was tried").
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_GC_THRESHOLDS)
            phases.close()
            for line in desk.greeting():
                click.echo(line, err=True)

    runtimes = model_runtimes.start(loaded.config, asyncio.get_running_loop(), on_phase)
    phases = Phases(time.monotonic)
    try:
        # The workers import the model while this process imports the web server.
        from headway.cli import front_desk

        desk = front_desk.FrontDesk(loaded, runtimes)
        for name, detail in failed:
            desk.failed(name, detail)
        code = await desk.serve(greet)
    finally:
        phases.close()
        await model_runtimes.close(runtimes)
    if desk.failure:
        click.echo(f"error: {desk.failure}", err=True)
    return code


def _check_files(models: Sequence[ModelConfig]) -> None:
    """A file that is not there is said before anything starts."""
    for m in models:
        file = m.path.partition(":")[0] if ".py:" in m.path else m.path
        if file.endswith((".py", ".onnx")) and not Path(file).exists():
            raise ConfigError(
                f"model {m.name!r}: there is no file {file}",
                param="path",
                hint="headway init app.py writes one to start from",
            )


def _flags(given: dict[str, Any]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for s in (*MODEL, *SERVER):
        value = given.get(s.key)
        if s.is_flag and value is not None:
            flags[s.key] = value if s.kind is bool else s.parse(value)
    for text in given["sets"]:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise ConfigError(f"--set {text!r} is not understood", hint="--set NAME.key=value")
        flags[key] = value
    return flags


def _read_yaml(name: str | None) -> dict[str, Any]:
    if not name:
        return {}
    import yaml

    try:
        document = yaml.safe_load(Path(name).read_text())
    except OSError as e:
        raise ConfigError(f"cannot read {name}: {e.strerror}", param="config") from None
    except yaml.YAMLError as e:
        raise ConfigError(f"{name} is not YAML: {e}", param="config") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{name} is not a mapping of settings", hint="port: 8000")
    return document


def _print_config(loaded: Loaded, *, as_json: bool) -> None:
    from headway.cli.show_config import as_json as to_json
    from headway.cli.show_config import as_yaml

    click.echo(to_json(loaded) if as_json else as_yaml(loaded), nl=as_json)
    if not as_json:
        for text in loaded.warnings:
            click.echo(f"warning: {text}", err=True)


command = click.Command(
    "serve",
    callback=run,
    params=_params(),
    short_help="Serve models over HTTP.",
    help=(
        "Serve one or several models: app.py[:Class], x.onnx, package.module:Class or mock."
        " Settings come from flags, then HEADWAY_... in the environment, then --config, then"
        " defaults."
        " A flag counts for every model; NAME=PATH names a model and --set NAME.key=value sets one"
        " of its settings."
    ),
)
