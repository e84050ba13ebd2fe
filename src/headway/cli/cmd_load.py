"""`headway load URL`: a load generator with honest latencies.

Knows how to turn flags into a `LoadPlan` and a report into a table; must not send anywhere but to
the URL given.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import uvloop

from headway.cli.progress import bar
from headway.core.errors import ConfigError
from headway.core.slo import Objective
from headway.experiments import batch_story, load_bodies
from headway.experiments.http_client import Address, fetch
from headway.experiments.load_report import Report, rows
from headway.experiments.loadgen import LoadPlan, Progress, run_load

_DEFAULT_CLIENTS = 16
_TEXTS = 256


@dataclass(slots=True, kw_only=True)
class BodyChoice:
    """Where bodies come from: the first that is set."""

    body: str | None = None
    bodies: str | None = None
    texts: int | None = None
    text_words: tuple[int, int] = (5, 200)
    method: str = "POST"


@click.command("load", short_help="Send load to a URL and report latency and goodput.")
@click.argument("url")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_S",
    help="Open loop: Poisson arrivals at this mean rate.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help=f"Closed loop: N clients, each sending when answered [default: {_DEFAULT_CLIENTS}]",
)
@click.option(
    "--duration",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Measured seconds.",
)
@click.option(
    "--warmup",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0),
    metavar="S",
    help="Seconds sent before, not counted.",
)
@click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    metavar="S",
    type=click.FloatRange(0, min_open=True),
    help="Seconds a client waits for an answer.",
)
@click.option(
    "--connections",
    default=1024,
    show_default=True,
    type=click.IntRange(1),
    help="Most open connections in the open loop.",
)
@click.option("--body", metavar="TEXT|@FILE", help="One request body.")
@click.option(
    "--bodies",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="One body per line, sent in turn.",
)
@click.option(
    "--texts",
    type=click.IntRange(1),
    metavar="N",
    help="N made-up texts of mixed length, shaped for the URL's route.",
)
@click.option(
    "--text-words",
    default=(5, 200),
    show_default=True,
    nargs=2,
    type=click.IntRange(1),
    metavar="LOW HIGH",
    help="Shortest and longest made-up text, in words.",
)
@click.option("--method", default="POST", show_default=True, help="HTTP method.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="An extra header; repeatable.",
)
@click.option(
    "--objective", default="", metavar="'p99<200ms'", help="Latency promise to count goodput under."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the arrival times and texts.")
@click.option("--check", is_flag=True, help="Exit 1 when the objective is missed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(url: str, **options: Any) -> int:
    """Send load to URL, and nowhere else, and report latency, throughput and goodput.

    With --rate, latency counts from each request's scheduled arrival: a stalled server cannot hide
    the requests that would have come meanwhile. Works on any HTTP server; from a Headway server the
    batches it formed are shown as well.
    """
    if options["rate"] is not None and options["concurrency"] is not None:
        raise ConfigError("--rate and --concurrency exclude each other", hint="give one of them")
    objective = Objective.parse(options["objective"]) if options["objective"] else None
    if options["check"] and objective is None:
        raise ConfigError("--check needs an --objective", hint="--objective 'p99<200ms'")
    choice = BodyChoice(
        **{k: options[k] for k in ("body", "bodies", "texts", "text_words", "method")}
    )
    if "://" not in url:
        url = "http://" + url
    if urlsplit(url).path in {"", "/"}:
        url = url.rstrip("/") + "/predict"
    rate, concurrency = options["rate"], options["concurrency"]

    async def whole() -> tuple[Report, batch_story.BatchStory | None]:
        plan = LoadPlan(
            url=url,
            rate=rate,
            concurrency=(concurrency or _DEFAULT_CLIENTS) if rate is None else None,
            duration_s=options["duration"],
            warmup_s=options["warmup"],
            timeout_s=options["timeout"],
            connections=options["connections"],
            bodies=await make_bodies(url, choice, options["seed"]),
            method=options["method"].upper(),
            headers=tuple(_header(h) for h in options["headers"]),
            objective=objective,
            seed=options["seed"],
        )
        with bar("sending", shown=not options["as_json"]) as advance:
            return await load_and_ask(plan, lambda s, ok, bad: advance(s, f"{ok} answers"))

    found, story = uvloop.run(whole())
    if options["as_json"]:
        batches = story.document() if story else None
        click.echo(json.dumps({**asdict(found), "batches": batches}))
    else:
        print_report(found, story)
    failed = found.ok == 0 or (options["check"] and not found.met)
    return 1 if failed else 0


async def load_and_ask(
    plan: LoadPlan, progress: Progress | None = None
) -> tuple[Report, batch_story.BatchStory | None]:
    """Run a plan; if the server is a Headway, also ask it which batches it formed."""
    root = _root(plan.url)
    before = batch_story.read_metrics(await _page(root + "/metrics"))
    found = await run_load(plan, progress)
    if not before:
        return found, None
    after = batch_story.read_metrics(await _page(root + "/metrics"))
    advice = batch_story.read_advice(await _page(root + "/debug/batches?last=0"))
    return found, batch_story.tell(before, after, advice)


async def make_bodies(url: str, choice: BodyChoice, seed: int) -> list[bytes]:
    """The bodies a run sends. Raises ConfigError when none was named."""
    if choice.body is not None:
        if choice.body.startswith("@"):
            return [_read(choice.body[1:])]
        return [choice.body.encode()]
    if choice.bodies is not None:
        return load_bodies.lines(_read(choice.bodies), choice.bodies)
    if choice.method.upper() in {"GET", "HEAD"}:
        return [b""]
    path = urlsplit(url).path
    if choice.texts is None and not path.startswith("/v1/embeddings"):
        raise ConfigError(
            "no request body", hint="--body '{\"x\": [1, 2, 3]}', --bodies FILE or --texts N"
        )
    low, high = choice.text_words
    made = load_bodies.texts(choice.texts or _TEXTS, low=low, high=max(low, high), seed=seed + 7)
    model = await _first_model(url) if path.startswith("/v1/") else ""
    return [load_bodies.text_body(path, text, model) for text in made]


def print_report(found: Report, story: batch_story.BatchStory | None) -> None:
    """The table on stdout."""
    click.echo(f"{found.url}")
    lines = rows(found) + (batch_story.story_rows(story) if story else [])
    for name, value in lines:
        click.echo(f"  {name:<15} {value}")


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as e:
        raise ConfigError(f"cannot read {name}: {e.strerror}", param="body") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or "\n" in text or "\r" in text:
        raise ConfigError(f"header {text!r} is not understood", hint="--header 'name: value'")
    return name.strip(), value.strip()


def _root(url: str) -> str:
    address = Address(url)
    return f"{'https' if address.tls else 'http'}://{address.netloc}"


async def _page(url: str) -> bytes:
    """A page, or nothing where there is none."""
    try:
        status, body = await fetch(url)
    except OSError:
        return b""
    return body if status == 200 else b""


async def _first_model(url: str) -> str:
    try:
        return str(json.loads(await _page(_root(url) + "/v1/models"))["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return ""
