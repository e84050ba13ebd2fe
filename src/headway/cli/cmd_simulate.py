"""`headway simulate`: the batching core in virtual time, policies side by side.

Knows how to turn flags into simulated loads and outcomes into a table.
"""

from __future__ import annotations

import json
from typing import Any

import click

from headway.core.config import Config, ModelConfig, ServerConfig, validate
from headway.core.errors import ConfigError
from headway.core.policy.catalog import BATCHING
from headway.core.slo import Objective
from headway.sim.service import ServiceTime
from headway.sim.virtual_load import Outcome, VirtualLoad, simulate

_HEAD = ("policy", "ok/s", "p50 ms", "p99 ms", "in time", "refused", "batch", "waste", "busy")
_DEFAULT_RATE = 100.0


@click.command("simulate", short_help="Run the batching core in virtual time.")
@click.option(
    "--service",
    default="8+1b",
    show_default=True,
    metavar="MS",
    help="Run time of a batch in ms: a fixed part, 'b' a row, 's' a unit of size, as 2+0.5b+0.1s.",
)
@click.option(
    "--form",
    default="list",
    show_default=True,
    type=click.Choice(["list", "padded", "packed"]),
    help="How sizes add up in a batch.",
)
@click.option(
    "--sizes",
    default=(1.0, 1.0),
    show_default=True,
    nargs=2,
    type=click.FloatRange(0, min_open=True),
    metavar="LOW HIGH",
    help="Sizes of items, log-uniform between.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_S",
    help=f"Poisson arrivals [default: {_DEFAULT_RATE:g}]",
)
@click.option(
    "--clients", type=click.IntRange(1), metavar="N", help="Closed loop: each sends when answered."
)
@click.option(
    "--duration",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Virtual seconds.",
)
@click.option(
    "--policy",
    "policies",
    default="greedy,deadline,static",
    show_default=True,
    metavar="LIST",
    help="Policies to compare.",
)
@click.option("--objective", default="", metavar="'p99<200ms'", help="Latency promise.")
@click.option("--max-batch-size", type=click.IntRange(1), metavar="N", help="Row cap.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Workers.")
@click.option(
    "--batch-window-ms",
    default=100.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Window of the static policy.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of arrivals and sizes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a policy.")
def command(**options: Any) -> int:
    """Play one load on the batching core that serves, in virtual time, once for each policy.

    The decisions are the live server's; only time and compute are simulated, so a minute of traffic
    takes a moment and one seed gives one result.
    """
    if options["rate"] is not None and options["clients"] is not None:
        raise ConfigError("--rate and --clients exclude each other", hint="give one of them")
    objective = Objective.parse(options["objective"]) if options["objective"] else None
    rate = None if options["clients"] else options["rate"] or _DEFAULT_RATE
    load = VirtualLoad(
        rate=rate,
        clients=options["clients"],
        duration_s=options["duration"],
        sizes=tuple(sorted(options["sizes"])),
        objective=objective,
        seed=options["seed"],
    )
    rows = []
    for policy in _policies(options["policies"], objective):
        config = _config(policy, options)
        outcome = simulate(config, ServiceTime.parse(options["service"], options["form"]), load)
        if options["as_json"]:
            click.echo(json.dumps(_document(policy, outcome, objective)))
        rows.append(_row(policy, outcome, objective))
    if not options["as_json"]:
        _print_table(rows)
    return 0


def _policies(text: str, objective: Objective | None) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BATCHING:
            raise ConfigError(f"no policy {name!r}", hint="one of " + ", ".join(BATCHING))
    if objective is None and names != ["deadline"]:
        # Without a promise this policy has nothing to decide by, and equals greedy.
        names = [name for name in names if name != "deadline"]
    return names


def _config(policy: str, options: dict[str, Any]) -> ModelConfig:
    static = {"batch_window_ms": options["batch_window_ms"]} if policy == "static" else {}
    config = ModelConfig(
        name="sim",
        path="sim",
        policy=policy,
        objective=options["objective"] if policy == "deadline" else "",
        max_batch_size=options["max_batch_size"],
        workers=options["workers"],
        **static,
    )
    validate(Config(ServerConfig(), (config,)))
    return config


def _numbers(outcome: Outcome, objective: Objective | None) -> dict[str, float | None]:
    ok = len(outcome.latencies_s)
    return {
        "ok_per_s": ok / outcome.span_s,
        "p50_ms": outcome.quantile_s(0.5) * 1e3 if ok else None,
        "p99_ms": outcome.quantile_s(0.99) * 1e3 if ok else None,
        "attainment": outcome.in_time / outcome.sent if objective and outcome.sent else None,
        "refused_share": sum(outcome.refused.values()) / outcome.sent if outcome.sent else 0.0,
        "rows_mean": outcome.rows / outcome.batches if outcome.batches else 0.0,
        "padding_waste": 1 - outcome.useful / outcome.padded if outcome.padded else 0.0,
        "busy_share": outcome.busy_s / outcome.span_s,
    }


def _document(policy: str, outcome: Outcome, objective: Objective | None) -> dict[str, Any]:
    return {
        "policy": policy,
        "sent": outcome.sent,
        "ok": len(outcome.latencies_s),
        "refused": dict(outcome.refused),
        "reasons": dict(outcome.reasons),
        **_numbers(outcome, objective),
        "advice": outcome.advice,
    }


def _row(policy: str, outcome: Outcome, objective: Objective | None) -> tuple[str, ...]:
    n = _numbers(outcome, objective)
    kinds = (".1f", ".1f", ".1f", ".1%", ".1%", ".1f", ".1%", ".0%")
    return (
        policy,
        *("-" if v is None else format(v, k) for v, k in zip(n.values(), kinds, strict=True)),
    )


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in [_HEAD, *rows]) for i in range(len(_HEAD))]
    for row in [_HEAD, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        click.echo("  ".join(cells))
