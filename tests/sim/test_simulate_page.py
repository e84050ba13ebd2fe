"""Pages show what the commands in them print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
EXAMPLES = re.findall(r"```console\n\$ headway (simulate [^\n]*)\n(.*?)```\n", PAGES, re.S)


def test_pages_have_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[c for c, _ in EXAMPLES])
def test_page_shows_what_the_command_prints(
    command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = CliRunner().invoke(cli, shlex.split(command), standalone_mode=False)
    assert found.exception is None
    assert found.output == output
