"""Embedding rows: the int8 file that padding makes slower, and the packed torch network."""

from __future__ import annotations

import json
import subprocess

from benchmarks.harness.bench import Bench, median, spread
from benchmarks.harness.catalog import PEERS, environ_of, interpreter
from benchmarks.harness.rows import Bar, Row, ratio

PACKED_SHARE = 0.78
"""300/s of the 385/s the packed network does alone, where both were first measured."""


def default_settings(bench: Bench) -> list[Row]:
    """32 clients, texts of mixed length, nothing set: does it find out that padding hurts?"""
    peers = ("mosec-off", "mosec", *bench.others())
    load = bench.load(10, 32, warm_s=3)
    with bench.side_by_side("embed", bench.subject, *peers) as servers:
        runs = bench.alternate(servers, lambda s: s.load(load).rps)
    ours = median(runs[0])
    return [
        Row(
            name="embed int8, 32 connections, default settings",
            value=ours,
            unit="/s",
            peer=peer,
            peer_value=median(theirs),
            bar=Bar(">=", 1.0, times_peer=True) if peer == "mosec-off" else None,
            note=ratio(ours, median(theirs)) + spread(runs[0]),
        )
        for peer, theirs in zip(peers, runs[1:], strict=True)
    ]


def packed(bench: Bench) -> list[Row]:
    """The bf16 network, packed, against the same network one text at a time."""
    alone = model_alone()
    load = bench.load(10, 32, warm_s=3)
    with bench.side_by_side("torch", bench.subject, "mosec-off") as servers:
        runs = bench.alternate(servers, lambda s: s.load(load).rps)
    ours, theirs = median(runs[0]), median(runs[1])
    name = "embed torch bf16 packed, 32 connections"
    limit = alone["torch_packed_32"]
    facts = f"the model alone here: packed {limit:g}/s, one by one {alone['torch_1']:g}/s"
    return [
        Row(name=name, value=ours, unit="/s", bar=Bar(">=", 300), note=facts),
        Row(
            name=name + ", against batch 1",
            value=ours,
            unit="/s",
            peer="mosec-off",
            peer_value=theirs,
            bar=Bar(">=", 2.0, times_peer=True),
            note=ratio(ours, theirs) + spread(runs[0]),
        ),
        Row(
            name=name + ", of the model alone",
            value=ours,
            unit="/s",
            peer="the model alone",
            peer_value=limit,
            bar=Bar(">=", PACKED_SHARE, times_peer=True),
            note=ratio(ours, limit) + spread(runs[0]),
        ),
    ]


def model_alone() -> dict[str, float]:
    """Texts a second of the models with no server around them, on one thread."""
    python = interpreter("mosec")
    environ = environ_of("mosec", "torch", 0, python)
    done = subprocess.run(
        [python, str(PEERS / "workload.py"), "alone"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    limits: dict[str, float] = json.loads(done.stdout)
    return limits
