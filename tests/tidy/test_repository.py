"""The repository as a reader finds it: README, generated pages, no traces of anyone's machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headway.cli.main import VERBS
from headway.cli.reference import PAGES
from headway.cli.settings import BY_KEY
from headway.core.batch import Close
from headway.core.config import ServerConfig
from headway.executor.model import Model

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


DOCS = sorted((ROOT / "docs").glob("*.md"))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, _, anchor in re.findall(r"\]\(([^)#]+)(#([^)]*))?\)", page.read_text()):
        if "://" in target:
            continue
        other = page.parent / target
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def test_readme_links_every_page_but_details() -> None:
    linked = set(re.findall(r"\(docs/(\w+\.md)", README.read_text()))
    assert linked == {p.name for p in DOCS}


def test_every_reason_to_close_a_batch_is_explained_once() -> None:
    page = (ROOT / "docs" / "batching.md").read_text()
    table = page.split("<!-- reasons -->")[1].split("<!-- end -->")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert sorted(told) == sorted(Close)


def test_the_page_on_models_shows_everything_a_model_may_say() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    block = re.search(r"class Model\(headway.Model\):\n(.*?)```", page, re.S)
    assert block is not None
    said = set(re.findall(r"^    (?:def )?(\w+)", block[1], re.M))
    may = {name for name in vars(Model) if not name.startswith("_")}
    assert said == may - {"config", "streams"}
    assert "streams = True" in page and "self.config" in page


def test_limits_named_in_operations_have_these_defaults() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+|none) \|", page, re.M)
    rows = [(key, told) for key, told in rows if key in BY_KEY]
    assert len(rows) > 15
    for key, told in rows:
        default = BY_KEY[key].default
        assert (None if told == "none" else float(told)) == default, key
    (grace,) = re.findall(r"at least the sum: (\d+)", page)
    assert int(grace) == ServerConfig().linger_s + ServerConfig().drain_s_max + 1
    told = set(re.findall(r"`(\w+_(?:max|min|s|ms))`", page))
    assert told <= set(BY_KEY), told - set(BY_KEY)


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
