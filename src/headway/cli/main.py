"""`headway`: the command line. Each verb is a `cmd_*` module, imported when it is used.

Knows the verbs' names and how an error is shown; must not import anything heavy.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from headway.core.errors import UserError

VERBS = {
    "serve": "Serve models over HTTP.",
    "load": "Send load to a URL and report latency and goodput.",
    "init": "Write a model file to start from.",
    "doctor": "Report what this machine has and lacks.",
    "simulate": "Run the batching core in virtual time.",
}


class Verbs(click.Group):
    """Finds a verb's module by name, so that one verb does not pay for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"headway.cli.cmd_{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headway", prog_name="headway")
def cli() -> None:
    """An inference server that batches requests right and explains every batch."""


def main(args: list[str] | None = None) -> None:
    """Entry point. A user's mistake ends with its message and hint on the last lines, status 2."""
    try:
        status = cli.main(args=args, prog_name="headway", standalone_mode=False)
    except click.ClickException as e:
        e.show()
        status = e.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = 130
    except UserError as e:
        click.echo(f"error: {e.message}", err=True)
        if e.hint:
            click.echo(f"hint: {e.hint}", err=True)
        status = 2 if e.code == "bad_config" else 1
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
