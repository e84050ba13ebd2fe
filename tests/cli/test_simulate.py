"""`headway simulate`: flags, table, JSON and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headway.cli.main import cli
from headway.core.errors import UserError


def simulate(*args: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *args], standalone_mode=False)


def test_json_has_every_policy_and_conserves_requests() -> None:
    found = simulate(
        "--rate", "900", "--duration", "3", "--policy", "greedy,deadline,static",
        "--max-batch-size", "16", "--objective", "p99<100ms", "--json",
    )  # fmt: skip
    policies = json.loads(found.output)["policies"]
    assert list(policies) == ["greedy", "deadline", "static"]
    for s in policies.values():
        assert s["asked"] == s["answered"] + s["refused"] + s["failed"] + s["cancelled"]
    assert policies["deadline"]["goodput_per_s"] > 5 * policies["greedy"]["goodput_per_s"]


@pytest.mark.parametrize("arrivals", ["poisson", "even", "bursty", "closed"])
def test_one_seed_prints_one_table(arrivals: str) -> None:
    def run(seed: int) -> str:
        return simulate(
            "--arrivals", arrivals, "--duration", "2", "--seed", str(seed), "--size", "10:90",
            "--form", "padded", "--service", "2+0.01s",
        ).output  # fmt: skip

    assert "latency p99 ms" in run(1)
    assert run(1) == run(1)
    if arrivals == "poisson":
        assert run(1) != run(2)


def test_crashes_show_as_failures() -> None:
    found = simulate("--crash-every", "0.5", "--duration", "5", "--json", "--workers", "2")
    greedy = json.loads(found.output)["policies"]["greedy"]
    assert greedy["failed"] == greedy["refusals"]["worker_crashed"] > 0


def test_trace_is_stretched_to_the_rate(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("arrival_s,size\n" + "".join(f"{n},{n + 1}\n" for n in range(101)))
    found = simulate("--trace", str(file), "--rate", "50", "--json")
    document = json.loads(found.output)
    assert document["load"] == f"101 requests of {file} in 2.0 s"
    assert document["policies"]["greedy"]["answered"] == 101


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--policy", "best"], "'best'"),
        (["--policy", ","], "no policy"),
        (["--service", "fast"], "'fast'"),
        (["--size", "big"], "'big'"),
        (["--objective", "soon"], "'soon'"),
        (["--trace", "no.csv"], "no.csv"),
        (["--arrivals", "closed", "--rate", "5"], "--rate"),
        (["--clients", "5"], "--clients"),
        (["--think-ms", "5"], "--think-ms"),
        (["--size-column", "x"], "--size-column"),
        (["--trace", "no.csv", "--clients", "5"], "--clients"),
        (["--trace", "no.csv", "--size", "5"], "sizes"),
    ],
)
def test_mistakes_say_what_to_change(args: list[str], words: str) -> None:
    error = simulate(*args).exception
    assert isinstance(error, UserError)
    assert words in error.message
    assert error.hint or "does nothing" in error.message
