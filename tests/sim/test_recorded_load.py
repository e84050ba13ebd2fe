"""Traces: good ones are read whole, bad rows are named by their line."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.sim.recorded_load import parse_trace, read_trace

TRACES = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.parametrize(
    ("name", "rows"),
    [("azure_llm_2023_conv.csv", 19_366), ("servegen_language_small_clients.csv", 15_000)],
)
def test_public_traces_are_read_whole(name: str, rows: int) -> None:
    trace = read_trace(TRACES / name)
    assert len(trace.arrivals) == rows
    assert trace.warnings == []
    assert trace.arrivals[0].at_s == 0.0
    assert max(a.size for a in trace.arrivals) > 1000
    assert all(a.deadline_s == inf for a in trace.arrivals)


def test_scaling_changes_the_rate_by_stretching_time() -> None:
    trace = parse_trace(["arrival_s,size", "1,10", "2,20", "4,30"], "t")
    fast = trace.scaled(20.0)
    assert [a.at_s for a in fast.arrivals] == pytest.approx([0.0, 1 / 30, 0.1])
    assert [a.size for a in fast.arrivals] == [10, 20, 30]
    assert [a.at_s for a in trace.until(2.0).arrivals] == [0.0, 1.0]


def test_rows_out_of_order_are_sorted_and_told() -> None:
    trace = parse_trace(["arrival_s,size", "5,1", "3,2", "4,3"], "t.csv")
    assert [(a.at_s, a.size) for a in trace.arrivals] == [(0, 2), (1, 3), (2, 1)]
    assert trace.warnings == ["t.csv: 1 rows were earlier than the row before; sorted by time"]


def test_optional_columns_are_read() -> None:
    trace = parse_trace(["arrival_s,rows,priority,deadline_s", "0,2,1,0.5", "1,1,0,"], "t")
    first, second = trace.arrivals
    assert (first.rows, first.priority, first.deadline_s, first.size) == (2, 1, 0.5, 1.0)
    assert second.deadline_s == inf


def test_sizes_come_from_the_column_named() -> None:
    trace = parse_trace(
        ["arrival_s,input_tokens,output_tokens", "0,3,7"], "t", size_column="output_tokens"
    )
    assert trace.arrivals[0].size == 7


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["arrival_s,size", "0,1", "x,2"], ["line 3", "arrival_s", "'x'"]),
        (["arrival_s,size", "0,nan"], ["line 2", "size"]),
        (["arrival_s,size", "0,-4"], ["line 2", "size", "'-4'"]),
        (["arrival_s,size", "0,1", "1"], ["line 3", "fields"]),
        (["arrival_s,size", "0,1,2"], ["line 2", "fields"]),
        (["arrival_s,size", "inf,1"], ["line 2", "arrival_s"]),
        (["time,size", "0,1"], ["arrival_s"]),
        (["arrival_s,size"], ["no rows"]),
        ([], ["arrival_s"]),
    ],
)
def test_bad_rows_are_named_by_line(lines: list[str], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse_trace(lines, "t.csv")
    assert all(word in caught.value.message for word in ["t.csv", *words])
    assert caught.value.hint


def test_missing_file_and_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.csv"):
        read_trace(tmp_path / "nothing.csv")
    with pytest.raises(UserError, match="no column tokens"):
        parse_trace(["arrival_s,size", "0,1"], "t", size_column="tokens")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        read_trace(tmp_path / "binary.csv")
