"""`headway simulate`: the batching core in virtual time, policies side by side.

Knows how flags become a load and a model, and how summaries become a table; must not know how a
load is played.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headway.core.config import Config, ModelConfig, ServerConfig, validate
from headway.core.errors import ConfigError
from headway.core.policy.catalog import BATCHING
from headway.core.ports import ModelInfo
from headway.core.slo import Objective
from headway.sim.arrivals import Arrival, ClosedLoop, Marks, bursty, even, parse_sizes, poisson
from headway.sim.recorded_load import read_trace
from headway.sim.replica import Crashes, Replica, warm_runs
from headway.sim.run_time import ServiceTime
from headway.sim.summary import Summary, summarize

_RATE = 100.0
_CLIENTS = 16


@dataclass(slots=True)
class Play:
    """One load and one model, for every policy alike."""

    load: list[Arrival] | ClosedLoop
    marks: Marks
    until_s: float
    words: str
    """The load, in words."""
    mean_size: float
    seed: int
    warnings: list[str]


@click.command("simulate", short_help="Run the batching core in virtual time.")
@click.option(
    "--service",
    default="8+1b",
    show_default=True,
    metavar="MS",
    help="Run time of a batch in ms: '8+1b' is 8 and 1 a row, '2+0.1s' is 0.1 a unit of size.",
)
@click.option(
    "--form",
    default="list",
    show_default=True,
    type=click.Choice(["list", "padded", "packed"]),
    help="How sizes add up in a batch.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_S",
    help=f"Mean arrivals a second [default: {_RATE:g}]; a trace is stretched to it.",
)
@click.option(
    "--duration",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Virtual seconds of load [default: 60, or the whole trace].",
)
@click.option(
    "--arrivals",
    default="poisson",
    show_default=True,
    type=click.Choice(["poisson", "even", "bursty", "closed"]),
    help="How requests arrive.",
)
@click.option(
    "--clients",
    type=click.IntRange(1),
    metavar="N",
    help=f"Clients of the closed loop [default: {_CLIENTS}].",
)
@click.option(
    "--think-ms",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="MS",
    help="Mean pause of a closed-loop client.",
)
@click.option("--trace", metavar="FILE", help="A CSV file with a column arrival_s.")
@click.option("--size-column", default="", metavar="NAME", help="The trace's column of sizes.")
@click.option(
    "--size",
    default="1",
    show_default=True,
    metavar="SIZE",
    help="Size of a request: '128', or '16:512' for log-uniform.",
)
@click.option(
    "--policy",
    default="greedy",
    show_default=True,
    metavar="NAMES",
    help="Comma separated: " + ", ".join(BATCHING) + ".",
)
@click.option("--max-batch-size", type=click.IntRange(1), metavar="ROWS", help="Cap on rows.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), metavar="N")
@click.option("--objective", default="", metavar="'p99<200ms'", help="Latency promise.")
@click.option(
    "--crash-every",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="A worker dies this often on average and is back after a second.",
)
@click.option("--seed", default=0, show_default=True, help="Same seed, same run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**options: Any) -> int:
    """Play a load against a model's run time in virtual time, with the code that serves live.

    The same load is played under every policy named; one seed always prints the same numbers.
    """
    objective = Objective.parse(options["objective"]) if options["objective"] else None
    policies = _policies(options["policy"])
    play = _play(options)
    found = {name: _run(name, play, options, objective) for name in policies}
    for warning in play.warnings:
        click.echo(f"warning: {warning}", err=True)
    if options["as_json"]:
        document = {
            "load": play.words,
            "service": options["service"],
            "seed": options["seed"],
            "policies": {name: asdict(s) for name, s in found.items()},
        }
        click.echo(json.dumps(document))
    else:
        click.echo(f"{play.words}; service {options['service']} ms; seed {options['seed']}")
        print_table(found)
    return 0


def _policies(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in BATCHING:
            raise ConfigError(
                f"no policy {name!r}", param="policy", hint="one of " + ", ".join(BATCHING)
            )
    if not names:
        raise ConfigError("no policy named", param="policy", hint="one of " + ", ".join(BATCHING))
    return list(dict.fromkeys(names))


def _play(options: dict[str, Any]) -> Play:
    """The load the flags ask for. Raises UserError where they contradict each other."""
    if options["trace"]:
        return _trace(options)
    if options["size_column"]:
        raise ConfigError("--size-column does nothing without --trace", param="size-column")
    sizes = parse_sizes(options["size"])
    marks = Marks(sizes=sizes)
    until_s, seed = options["duration"] or 60.0, options["seed"]
    draw = random.Random(f"{seed} mean")
    mean_size = sum(sizes(draw) for _ in range(1000)) / 1000
    kind = options["arrivals"]
    if kind == "closed":
        if options["rate"] is not None:
            raise ConfigError(
                "--rate does nothing with closed-loop clients", hint="use --clients and --think-ms"
            )
        clients = options["clients"] or _CLIENTS
        loop = ClosedLoop(clients, until_s, options["think_ms"] / 1e3)
        words = f"{clients} closed-loop clients for {until_s:g} s"
        return Play(loop, marks, until_s, words, mean_size, seed, [])
    for key in ("clients", "think_ms"):
        if options[key]:
            flag = key.replace("_", "-")
            raise ConfigError(f"--{flag} needs --arrivals closed", hint="add it, or use --rate")
    rate, rng = options["rate"] or _RATE, random.Random(f"{seed} times")
    if kind == "even":
        times = even(rate, until_s)
    else:
        times = (poisson if kind == "poisson" else bursty)(rate, until_s, rng)
    load = list(marks.put_on(times, random.Random(f"{seed} marks")))
    words = f"{rate:g}/s {kind} for {until_s:g} s"
    return Play(load, marks, until_s, words, mean_size, seed, [])


def _trace(options: dict[str, Any]) -> Play:
    for key in ("clients", "think_ms"):
        if options[key]:
            flag = key.replace("_", "-")
            raise ConfigError(f"--{flag} does nothing with --trace", hint="leave one of them out")
    if options["arrivals"] != "poisson" or options["size"] != "1":
        raise ConfigError(
            "a trace has its own arrivals and sizes", hint="leave out --arrivals and --size"
        )
    trace = read_trace(options["trace"], size_column=options["size_column"])
    if options["rate"]:
        trace = trace.scaled(options["rate"])
    if options["duration"]:
        trace = trace.until(options["duration"])
    count, span_s = len(trace.arrivals), trace.span_s
    until_s = options["duration"] or span_s
    words = f"{count} requests of {options['trace']} in {span_s:.1f} s"
    mean_size = sum(a.size for a in trace.arrivals) / count
    seed = options["seed"]
    return Play(trace.arrivals, Marks(), until_s, words, mean_size, seed, trace.warnings)


def _run(policy: str, play: Play, options: dict[str, Any], objective: Objective | None) -> Summary:
    service = ServiceTime.parse(options["service"], options["form"])
    config = ModelConfig(
        name="model",
        path="simulated",
        policy=policy,
        max_batch_size=options["max_batch_size"],
        objective=options["objective"],
        workers=options["workers"],
    )
    validate(Config(ServerConfig(), (config,)))
    cap = options["max_batch_size"] or 64
    warm = warm_runs(service, cap, play.mean_size)
    info = ModelInfo(name="model", form=options["form"], size_unit="units", warm=warm)
    replica = Replica(config, service, info=info, crashes=_crashes(play, options))
    log = replica.play(play.load, until_s=play.until_s, marks=play.marks, seed=play.seed)
    return summarize(log, objective)


def _crashes(play: Play, options: dict[str, Any]) -> Crashes | None:
    if not options["crash_every"]:
        return None
    return Crashes.seeded(
        random.Random(f"{play.seed} crashes"),
        every_s=options["crash_every"],
        until_s=play.until_s,
        workers=options["workers"],
        away_s=1.0,
    )


def print_table(found: dict[str, Summary]) -> None:
    """Policies side by side: drawn on a terminal, plain columns elsewhere."""
    lines = table_rows(list(found.values()))
    if sys.stdout.isatty():
        table = Table("", *found)
        for column in table.columns[1:]:
            column.justify = "right"
        for name, values in lines:
            table.add_row(name, *values)
        Console().print(table)
        return
    grid = [("", list(found)), *lines]
    widths = [max(len(v[i]) for _, v in grid) for i in range(len(found))]
    left = max(len(name) for name, _ in grid)
    for name, values in grid:
        cells = "  ".join(v.rjust(w) for v, w in zip(values, widths, strict=True))
        click.echo(f"{name:<{left}}  {cells}".rstrip())


def table_rows(all_: Sequence[Summary]) -> list[tuple[str, list[str]]]:
    """Lines of the table: a name, and a value for each run."""

    def line(name: str, value: Callable[[Summary], str]) -> tuple[str, list[str]]:
        return name, [value(s) for s in all_]

    lines = [
        line("asked", lambda s: f"{s.asked}"),
        line("answered", lambda s: f"{s.answered}"),
        *_codes(all_),
        line("answers/s", lambda s: f"{s.throughput_per_s:.1f}"),
    ]
    for name in ("mean", "std", "p50", "p90", "p95", "p99", "p99.9", "max"):
        values = [_ms(s.latency_s.get(name, inf)) for s in all_]
        lines.append((f"latency {name} ms", values))
    if any(s.attainment is not None for s in all_):
        lines += [
            line("objective", lambda s: s.objective + (" met" if s.met else " missed")),
            line("attainment", lambda s: f"{s.attainment or 0.0:.2%}"),
            line("goodput/s", lambda s: f"{s.goodput_per_s or 0.0:.1f}"),
        ]
    lines += [
        line("utilisation", lambda s: f"{s.utilisation:.1%}"),
        line("batches", lambda s: f"{s.batches}"),
        line("batch rows mean", lambda s: f"{s.batch_rows_mean:.2f}"),
        line("padding waste", lambda s: f"{s.padding_waste:.1%}"),
    ]
    lines += _shares("rows", [_bands(s.batch_rows) for s in all_], all_)
    reasons = list(dict.fromkeys(r for s in all_ for r in s.reasons))
    lines += _shares("closed", [{r: s.reasons.get(r, 0) for r in reasons} for s in all_], all_)
    return lines


def _codes(all_: Sequence[Summary]) -> list[tuple[str, list[str]]]:
    codes = dict.fromkeys(c for s in all_ for c in s.refusals)
    return [(f"  {code}", [str(s.refusals.get(code, 0)) for s in all_]) for code in codes]


def _bands(rows: dict[int, int]) -> dict[str, int]:
    """The histogram in doublings: 1, 2, 3-4, 5-8 ..."""
    found: dict[int, int] = {}
    for n, count in rows.items():
        k = (n - 1).bit_length()
        found[k] = found.get(k, 0) + count
    return {_band(k): found.get(k, 0) for k in range(max(found, default=-1) + 1)}


def _band(k: int) -> str:
    high = 1 << k
    return str(high) if k < 2 else f"{high // 2 + 1}-{high}"


def _shares(
    word: str, counts: Sequence[dict[str, int]], all_: Sequence[Summary]
) -> list[tuple[str, list[str]]]:
    names = dict.fromkeys(name for c in counts for name in c)
    return [
        (
            f"  {word} {name}",
            [
                f"{c.get(name, 0) / max(s.batches, 1):.1%}"
                for c, s in zip(counts, all_, strict=True)
            ],
        )
        for name in names
    ]


def _ms(seconds: float) -> str:
    return "-" if seconds == inf else f"{seconds * 1e3:.2f}"
