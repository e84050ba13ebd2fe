"""The repository as a reader finds it: README, generated pages, no traces of anyone's machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headway.cli.main import VERBS
from headway.cli.reference import PAGES

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
ABSOLUTE = re.compile(r"(?<![\w.~$}/-])/(?:home|root|Users|work|mnt|opt|srv)/[\w.-]+")
TEXT = {".py", ".md", ".txt", ".toml", ".yaml", ".yml", ".sh", ".cfg", ""}
NOT_OURS = (".venv", ".git", ".bench", "build", "dist")


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        paths = [p for p in ROOT.rglob("*") if not set(p.parts) & set(NOT_OURS)]
    return [p for p in paths if p.is_file() and p.suffix in TEXT]


def code_blocks(text: str) -> str:
    return "\n".join(re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.S))


def test_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) < 120


def test_readme_commands_exist() -> None:
    """Every `make x` and `headway x` in the README is a target or a verb."""
    shell = code_blocks(README.read_text())
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    asked = re.findall(r"^\s*make ([a-z]+)", shell, re.M)
    verbs = re.findall(r"(?:^|\s)headway ([a-z]+)", shell)
    assert asked and verbs
    assert set(asked) <= targets
    assert set(verbs) <= set(VERBS)


def test_readme_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", README.read_text()):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_readme_model_is_the_example() -> None:
    """The model file shown is the one in examples/, and it is short."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    source = (ROOT / "examples" / "sum.py").read_text()
    assert any(block.strip() in source for block in blocks)
    assert all(len(block.strip().splitlines()) <= 16 for block in blocks)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_reference_pages_equal_the_code(name: str) -> None:
    """`make docs` writes them."""
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run: make docs"


def test_no_paths_of_anyones_machine() -> None:
    found = []
    for path in files():
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if ABSOLUTE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)


def test_no_registry_host_is_named() -> None:
    """Which registry to use is the user's configuration, not ours."""
    for name in ("constraints.txt", "demo-models.txt", "pyproject.toml", "Makefile", ".ci/run"):
        text = (ROOT / name).read_text()
        assert "index-url" not in text and "https://" not in text, name
