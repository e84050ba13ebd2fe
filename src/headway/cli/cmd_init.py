"""`headway init`: writes a model file of about 15 lines that serves as it is.

Knows the template; must never overwrite a file unasked.
"""

from __future__ import annotations

from pathlib import Path

import click

from headway.core.errors import ConfigError

TEMPLATE = '''\
"""A model for Headway. Serve it with: headway serve {file}"""

import headway


class Model(headway.Model):
    def load(self) -> None:
        """Runs once in each worker: read weights here."""
        self.scale = 2.0

    def predict(self, batch: list) -> list:
        """One result per item, in order. Items come from requests that arrived together."""
        return [{{"y": self.scale * sum(item["x"])}} for item in batch]

    def warmup(self) -> list:
        return [{{"x": [1.0, 2.0, 3.0]}}]
'''


@click.command("init", short_help="Write a model file to start from.")
@click.argument("file", default="app.py", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def command(file: str, force: bool) -> int:
    """Write FILE (app.py unless named), a model that already runs."""
    path = Path(file)
    if path.exists() and not force:
        raise ConfigError(f"{file} exists", hint="name another file, or use --force")
    try:
        path.write_text(TEMPLATE.format(file=file))
    except OSError as e:
        raise ConfigError(f"cannot write {file}: {e.strerror}") from None
    click.echo(f"wrote {file}\n")
    click.echo(f"  headway serve {file}")
    click.echo(
        "  curl localhost:8000/predict -d '{\"x\": [1, 2, 3]}' -H 'content-type: application/json'"
    )
    click.echo("  headway load localhost:8000 --concurrency 32 --body '{\"x\": [1, 2, 3]}'")
    return 0
