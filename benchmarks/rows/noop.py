"""No-op rows: what the server itself costs, and how well it fills batches of a fixed 5 ms."""

from __future__ import annotations

from functools import partial

from benchmarks.harness.bench import Bench, median, spread
from benchmarks.harness.rows import Bar, Row, ratio
from benchmarks.harness.server_process import Server

IDEAL_RPS = 6400.0
"""32 requests in each batch of 5 ms."""


def one_connection(bench: Bench) -> list[Row]:
    """Latency of a single closed-loop client."""
    peers = ("mosec", *bench.others())
    load = bench.load(3, 1, warm_s=0.5)
    with bench.side_by_side("noop", bench.subject, *peers) as servers:
        runs = bench.alternate(servers, lambda s: s.load(load).p50)
    ours = median(runs[0])
    name = "no-op, 1 connection, p50"
    bar = Bar("<=", 0.3)
    note = spread(runs[0])
    return [
        Row(
            name=name,
            value=ours,
            unit="ms",
            peer=peer,
            peer_value=median(theirs),
            bar=bar if peer == "mosec" else None,
            note=note,
        )
        for peer, theirs in zip(peers, runs[1:], strict=True)
    ]


def many_connections(bench: Bench) -> list[Row]:
    """Throughput of 32 closed-loop clients: value is requests a second."""
    peers = ("mosec", *bench.others())
    load = bench.load(5, 32)
    with bench.side_by_side("noop", bench.subject, *peers) as servers:
        runs = bench.alternate(servers, lambda s: s.load(load).rps)
    ours = median(runs[0])
    return [
        _against(peer, theirs, runs[0], ours, "no-op, 32 connections", 1.5)
        for peer, theirs in zip(peers, runs[1:], strict=True)
    ]


def _against(
    peer: str, theirs: list[float], runs: list[float], ours: float, name: str, times: float
) -> Row:
    other = median(theirs)
    return Row(
        name=name,
        value=ours,
        unit="/s",
        peer=peer,
        peer_value=other,
        bar=Bar(">=", times, times_peer=True) if peer == "mosec" else None,
        note=ratio(ours, other) + spread(runs),
    )


def full_batches(bench: Bench) -> list[Row]:
    """5 ms a batch of 32 and 64 clients: how much of the ideal is reached."""
    peers = ("mosec", *bench.others())
    load = bench.load(4, 64)
    with bench.side_by_side("noop5", bench.subject, *peers) as servers:
        runs = bench.alternate(servers, lambda s: s.load(load).rps / IDEAL_RPS * 100)
    return [
        Row(
            name="no-op + 5 ms, 64 connections, of 6,400/s",
            value=median(runs[0]),
            unit="%",
            peer=peer,
            peer_value=median(theirs),
            bar=Bar(">=", 94) if peer == "mosec" else None,
            note=spread(runs[0]),
        )
        for peer, theirs in zip(peers, runs[1:], strict=True)
    ]


def partly_filled(bench: Bench) -> list[Row]:
    """Closed-loop clients that do not fill whole batches."""
    rows = []
    with bench.side_by_side("noop5", bench.subject, "mosec") as servers:
        for connections in (8, 20, 40, 48):
            load = bench.load(3, connections, warm_s=0.5)
            runs = bench.alternate(servers, partial(Server.load, load=load))
            ours, theirs = ([o.rps for o in each] for each in runs)
            name = f"no-op + 5 ms, {connections} connections"
            rows.append(_against("mosec", theirs, ours, median(ours), name, 1.05))
    return rows
