"""`headway simulate`: policies side by side in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.cli.main import main
from headway.core.config import ModelConfig
from headway.sim.service import ServiceTime
from headway.sim.virtual_load import VirtualLoad, simulate


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *args])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def documents(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    code, out, _ = run(capsys, *args, "--json")
    assert code == 0
    return {d["policy"]: d for d in map(json.loads, out.splitlines())}


def test_every_request_is_answered_once_and_a_seed_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ("--rate", "200", "--duration", "5", "--seed", "3")
    first, second = documents(capsys, *args), documents(capsys, *args)
    assert first == second
    for found in first.values():
        assert found["ok"] + sum(found["refused"].values()) == found["sent"] > 800
        assert found["ok_per_s"] == pytest.approx(200, rel=0.1)


def test_greedy_answers_sooner_than_a_window_at_light_load(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = documents(capsys, "--rate", "50", "--duration", "5", "--policy", "greedy,static")
    assert found["greedy"]["p50_ms"] < 20
    assert found["static"]["p50_ms"] > 50


def test_deadline_keeps_a_promise_that_greedy_breaks_in_overload(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ("--rate", "1500", "--duration", "5", "--objective", "p99<100ms")
    found = documents(capsys, *args, "--policy", "greedy,deadline")
    assert found["deadline"]["attainment"] > 5 * found["greedy"]["attainment"]
    assert found["deadline"]["p99_ms"] < 150
    assert found["greedy"]["p99_ms"] > 500


def test_closed_loop_never_has_more_out_than_clients() -> None:
    outcome = simulate(
        ModelConfig(name="m", path="m", policy="greedy"),
        ServiceTime.parse("5+1b"),
        VirtualLoad(clients=4, duration_s=2.0),
    )
    assert outcome.rows / outcome.batches <= 4
    assert outcome.sent == len(outcome.latencies_s)


def test_mistakes_exit_2_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (("--service", "fast"), ("--policy", "best"), ("--rate", "1", "--clients", "1")):
        code, _, err = run(capsys, *args)
        assert code == 2 and "hint: " in err
