"""The reference pages, written from the code: `docs/configuration.md` and `docs/cli.md`.

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


PAGES = {"configuration.md": configuration_page, "cli.md": cli_page}


def write(folder: Path) -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (folder / name).write_text(page())


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
