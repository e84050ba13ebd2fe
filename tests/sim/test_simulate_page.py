"""docs/simulate.md shows what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulate.md").read_text()
EXAMPLES = re.findall(r"```console\n\$ headway ([^\n]*)\n(.*?)```\n", PAGE, re.S)


def test_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[c for c, _ in EXAMPLES])
def test_page_shows_what_the_command_prints(
    command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = CliRunner().invoke(cli, shlex.split(command), standalone_mode=False)
    assert found.exception is None
    assert found.output == output
