"""The command line as a user meets it: verbs, exit codes, last lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import headway
from headway.cli.cmd_init import TEMPLATE
from headway.cli.load_config import Sources, load
from headway.cli.main import VERBS, main


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0 and "Usage:" in out


def test_unknown_flag_and_verb_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "serve", "a.py", "--max-batchsize", "3")
    assert code == 2 and "--max-batch-size" in err
    assert run(capsys, "sevre")[0] == 2


def test_b18_print_config_reads_back_as_itself(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    """B18: the printed configuration is complete: as a file it gives the same configuration."""
    args = ("serve", "a.py", "b.onnx", "--objective", "p99<200ms", "--padded-sizes", "1,8")
    code, out, _ = run(capsys, *args, "--set", "b.max_batch_size=8", "--no-hold", "--print-config")
    assert code == 0
    again = load(Sources(file=yaml.safe_load(out), file_name="printed"))
    a, b = again.config.models
    assert (a.max_batch_size, b.max_batch_size, a.policy) == (None, 8, "deadline")
    assert (a.padded_sizes, a.hold, b.objective) == ((1, 8), False, "p99<200ms")
    lines = {line.split(":")[0].strip(" -"): line for line in out.splitlines() if "#" in line}
    assert "derived from objective" in lines["policy"]
    assert "ms; default" in lines["slot_time_ms_max"]


def test_print_config_names_where_the_cap_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "serve", "a.py", "--class", "heavy", "--print-config", "--json")
    entry = json.loads(out)["models"]["a"]["max_batch_size"]
    assert entry["value"] is None and "16 (class heavy), then measured" in entry["note"]
    assert entry["unit"] == "rows"


def test_config_file_and_its_mistakes(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    file = here / "c.yaml"
    file.write_text("port: 9000\nmodels: [{name: m, path: a.py}]\n")
    code, out, _ = run(capsys, "serve", "--config", "c.yaml", "--print-config", "--json")
    entry = json.loads(out)["server"]["port"]
    assert code == 0 and entry == {"value": 9000, "unit": "", "origin": "file c.yaml"}
    file.write_text("prot: 9000\n")
    code, _, err = run(capsys, "serve", "a.py", "--config", "c.yaml")
    assert code == 2 and err.splitlines()[-1] == "hint: did you mean 'port'?"
    file.write_text("port: [\n")
    assert run(capsys, "serve", "a.py", "--config", "c.yaml")[0] == 2
    assert run(capsys, "serve", "a.py", "--config", "absent.yaml")[0] == 2


def test_init_writes_a_short_model_and_keeps_what_exists(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    code, out, _ = run(capsys, "init")
    source = (here / "app.py").read_text()
    assert code == 0 and "headway serve app.py" in out
    assert len(source.splitlines()) <= 20
    compile(source, "app.py", "exec")
    code, _, err = run(capsys, "init")
    assert code == 2 and "--force" in err
    assert run(capsys, "init", "--force")[0] == 0
    assert source == TEMPLATE.format(file="app.py")


def test_doctor_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "doctor", "--json", "--port", "0")
    document = json.loads(out)
    assert document["cores"] >= 1 and document["memory_bytes"] > 2**28
    assert document["packages"]["uvicorn"].startswith("0.54")
    assert set(document["extras"]) == {"onnx", "torch"}
    assert document["port_free"] is True


def test_doctor_tells_people_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CONFIG", "absent.yaml")
    code, out, _ = run(capsys, "doctor", "--port", "0")
    assert code == 1 and "problem: HEADWAY_CONFIG names absent.yaml" in out


def test_the_command_line_starts_without_heavy_imports() -> None:
    heavy = "{'numpy','rich','yaml','uvicorn','asyncio','uvloop'}"
    script = f"import sys, headway.cli.main; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(headway.__file__).parents[1])},
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr
