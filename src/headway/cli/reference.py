"""The reference pages, written from the code: settings, command line and metrics.

`python -m headway.cli.reference docs` writes them; a test compares them. Knows Markdown; must not
know where values come from.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from headway.cli.main import VERBS, cli
from headway.cli.settings import MODEL, SERVER, Setting
from headway.obs.prometheus import METRICS, Metric

_HEAD = """\
# Configuration

Written from `src/headway/core/config.py` by `make docs`; do not edit.

Every setting is a flag of `headway serve`, a key of the YAML file given with `--config`, and an
environment name. The first of these that sets it wins: flag, environment, the model's own entry in
the file, the file, default. `headway serve ... --print-config` shows every value with its origin,
and a running server shows the same at `GET /debug/config`. An unknown key is an error that names
the nearest known one; so is a setting that does nothing.

```yaml
port: 8000
objective: p99<200ms          # for every model
models:
  - name: embed
    path: embed.py
    class: light
  - name: caption
    path: caption.py:Captioner
    class: heavy
    max_batch_size: 8         # for this model only
```

On the command line a flag counts for every model, `NAME=PATH` names a model, and
`--set caption.max_batch_size=8` sets one model's own value.

A setting whose unit is *size units* counts in what the model measures: bytes of the body unless the
model has a `measure` of its own (tokens, pixels).
"""


def configuration_page() -> str:
    """`docs/configuration.md`."""
    parts = [_HEAD]
    for title, settings in (("Models", MODEL), ("Server", SERVER)):
        parts.append(f"## {title}\n")
        parts.append("| key | flag | environment | unit | default | allowed | meaning |")
        parts.append("|---|---|---|---|---|---|---|")
        parts += [_row(s) for s in settings]
        parts.append("")
    return "\n".join(parts)


def _row(s: Setting) -> str:
    flag = f"`{s.flag}`" if s.is_flag else ""
    if s.kind is bool:
        flag = f"`{s.flag}` / `--no-{s.flag[2:]}`"
    env = f"`{s.env}`" if s.is_flag else ""
    cells = (f"`{s.key}`", flag, env, s.unit, _default(s), _allowed(s), s.help)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _default(s: Setting) -> str:
    if s.default is None or s.default in ("", ()):
        return "none"
    if isinstance(s.default, bool):
        return str(s.default).lower()
    return f"{s.default:g}" if isinstance(s.default, float) else str(s.default)


def _allowed(s: Setting) -> str:
    if s.choices:
        return ", ".join(s.choices)
    if s.low is None:
        return ""
    low = f"{s.low:g}"
    return f"{'>' if s.above else '>='} {low}" + (f", <= {s.high:g}" if s.high is not None else "")


def cli_page() -> str:
    """`docs/cli.md`."""
    parts = ["# Command line\n\nWritten from the code by `make docs`; do not edit.\n"]
    parts.append(
        "Exit codes: 0 done, 1 the work failed (a model did not start, no answer, `--check`"
        " missed), 2 a mistake on the command line or in a setting.\n"
    )
    context = click.Context(cli, info_name="headway")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        parts.append(f"## headway {verb}\n")
        usage = " ".join(command.collect_usage_pieces(click.Context(command, context, verb)))
        parts.append(f"`headway {verb} {usage}`\n")
        parts.append(_paragraphs(command.help or "") + "\n")
        rows = [r for r in (_option_row(p) for p in command.params) if r]
        if verb == "serve":
            rows = [r for r, p in zip(rows, _options(command), strict=True) if p.name in _SERVE_OWN]
            parts.append("Every key of [configuration](configuration.md) is a flag too.\n")
        if rows:
            parts += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(parts)


_SERVE_OWN = {"config_file", "sets", "print_config", "as_json"}


def _options(command: click.Command) -> list[click.Parameter]:
    return [p for p in command.params if isinstance(p, click.Option)]


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(p.split()) for p in text.split("\n\n"))


def _option_row(p: Any) -> str:
    if not isinstance(p, click.Option):
        return ""
    names = ", ".join(f"`{o}`" for o in (*p.opts, *p.secondary_opts))
    value = "" if p.is_flag else f" {p.metavar or ''}".rstrip()
    default = ""
    if p.show_default and p.default not in (None, ""):
        shown = " ".join(map(str, p.default)) if isinstance(p.default, tuple) else p.default
        default = f" (default: {shown})"
    meaning = f"{p.help or ''}{default}"
    return f"| {names}{value} | {meaning} |".replace("|@", "\\|@")


_METRICS_HEAD = """\
# Metrics

Written from `src/headway/obs/prometheus.py` by `make docs`; do not edit.

`GET /metrics` on the serving port, in Prometheus' text format, everything from the one process
there is. Counters and histograms are fed from the same event records as `/debug/batches` and
`headway simulate`, once per batch. Times are in seconds, sizes in the model's own unit. Every
series of a model has the label `model`.

| metric | type | labels | meaning | wake someone when |
|---|---|---|---|---|
"""

_METRICS_TAIL = """
`reason` of a batch is one of the words in [Why a batch closed](batching.md#why-a-batch-closed),
`code` of a refusal one of those in [Overload](operations.md#overload). `running` says whether a
request whose client left was running: its row stays taken until the work stops.

Useful expressions:

| question | expression |
|---|---|
"""

_QUESTIONS = (
    ("mean batch", "rate(headway_batch_rows_sum[5m]) / rate(headway_batch_rows_count[5m])"),
    ("why batches close", "sum by (reason) (rate(headway_batches_total[5m]))"),
    (
        "padding waste",
        "1 - rate(headway_useful_size_total[5m]) / rate(headway_padded_size_total[5m])",
    ),
    (
        "refused per answer",
        "sum(rate(headway_refused_total[5m])) / sum(rate(headway_requests_total[5m]))",
    ),
    ("replicas to run", "headway_requests_waiting"),
)


def metrics_page() -> str:
    """`docs/metrics.md`."""
    rows = "".join(_metric_row(m) for m in METRICS)
    edges = "".join(
        f"- `{m.name}`: {', '.join(f'{edge:g}' for edge in m.edges)}\n"
        for m in METRICS
        if m.kind == "histogram"
    )
    asked = "".join(f"| {question} | `{text}` |\n" for question, text in _QUESTIONS)
    return f"{_METRICS_HEAD}{rows}{_METRICS_TAIL}{asked}\n## Bucket edges\n\n{edges}"


def _metric_row(m: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in m.labels)
    return f"| `{m.name}` | {m.kind} | {labels} | {m.text} | {m.page} |\n"


PAGES = {"configuration.md": configuration_page, "cli.md": cli_page, "metrics.md": metrics_page}


def write(folder: Path) -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (folder / name).write_text(page())


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
