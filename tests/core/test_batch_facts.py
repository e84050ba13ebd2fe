"""How sizes add up in a batch, and what the records say of it."""

from __future__ import annotations

import pytest

from headway.core.batch import Batch, Close, padding_waste, totals
from headway.core.events import BatchClosed, BatchFinished
from headway.core.ports import ModelInfo
from headway.core.request import Request
from tests.core.stage import Answer, Stage


def requests(*sizes: tuple[int, float]) -> list[Request]:
    stage = Stage(start=False)
    return [
        Request(id=i, payload=b"abc", arrival_s=0.0, reply=Answer(stage), rows=rows, size=size)
        for i, (rows, size) in enumerate(sizes)
    ]


def test_totals_count_rows_not_requests() -> None:
    assert totals(requests((1, 10.0), (3, 4.0))) == (4, 10.0, 22.0)
    assert totals([]) == (0, 0.0, 0.0)


def test_padded_size_counts_padded_rows_and_packed_size_does_not() -> None:
    members = requests((1, 10.0), (3, 4.0))
    batch = Batch(
        id=1, model="m", worker=0, requests=members, rows=4, longest=10.0, total=22.0,
        opened_s=0.0, closed_s=0.0, reason=Close.FULL, padded_rows=4,
    )  # fmt: skip
    assert batch.padded("padded") == 80.0
    assert batch.padded("packed") == batch.padded("list") == 22.0


@pytest.mark.parametrize(
    ("padded", "useful", "waste"), [(0.0, 0.0, 0.0), (100.0, 75.0, 0.25), (10.0, 11.0, 0.0)]
)
def test_padding_waste_is_a_share(padded: float, useful: float, waste: float) -> None:
    assert padding_waste(padded, useful) == pytest.approx(waste)


def test_the_records_tell_who_waited_how_long_and_why_the_batch_closed() -> None:
    stage = Stage("100", info=ModelInfo("m", form="padded"), max_batch_size=4, name="m")
    stage.ask(size=10)
    stage.world.run(0.0)
    a = stage.ask_at(0.02, size=8)
    b = stage.ask_at(0.05, size=8)
    stage.world.run()
    closed = [e for e in stage.events if isinstance(e, BatchClosed)][1]
    assert closed.ids == (a[0][0].id, b[0][0].id)
    assert closed.waits_s == pytest.approx((closed.now - 0.02, closed.now - 0.05))
    assert (closed.rows, closed.requests, closed.longest, closed.total) == (2, 2, 8, 16)
    # Two rows never ran: their time is that of one, in proportion to the work.
    assert closed.opened_s == pytest.approx(0.02) and closed.predicted_s == pytest.approx(0.16)
    finished = [e for e in stage.events if isinstance(e, BatchFinished)][1]
    assert finished.batch_id == closed.batch_id and finished.ok
    assert finished.run_s == pytest.approx(0.1)
    assert finished.latencies_s == pytest.approx((a[0][1].at_s - 0.02, b[0][1].at_s - 0.05))
    assert (finished.padded, finished.useful, finished.errors) == (16, 16, 0)


def test_a_lost_batch_is_recorded_as_failed() -> None:
    stage = Stage("100", max_batch_size=4)
    stage.ask()
    stage.ask()
    stage.world.run(0.0)
    stage.executor.crash(0)
    record = next(e for e in stage.events if isinstance(e, BatchFinished))
    assert not record.ok and record.errors == 2
