"""`headway doctor`: what this machine has and lacks, to read or to attach to a ticket."""

from __future__ import annotations

import json

import click

from headway.cli.machine_report import inspect, lines


@click.command("doctor", short_help="Report what this machine has and lacks.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to try the port on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to look at.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(host: str, port: int, as_json: bool) -> int:
    """Report Python, cores, memory, limits and packages, with hints. Exit 1 on a problem."""
    found = inspect(host, port)
    if as_json:
        click.echo(json.dumps(found.document(), indent=2))
    else:
        for name, value in lines(found):
            click.echo(f"{name:<20} {value}")
        for text in found.problems:
            click.echo(f"problem: {text}")
        for text in found.hints:
            click.echo(f"hint: {text}")
    return 1 if found.problems else 0
