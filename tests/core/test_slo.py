"""A promise as people write it."""

from __future__ import annotations

import pytest

from headway.core.errors import ConfigError
from headway.core.slo import Objective


@pytest.mark.parametrize(
    ("text", "quantile", "limit_s"),
    [
        ("p99<200ms", 0.99, 0.2),
        (" P95 <= 1.5 s ", 0.95, 1.5),
        ("p99.9 under 500us", 0.999, 0.0005),
        ("p50<1s", 0.5, 1.0),
    ],
)
def test_what_people_write_is_read(text: str, quantile: float, limit_s: float) -> None:
    objective = Objective.parse(text)
    assert objective.quantile == pytest.approx(quantile)
    assert objective.limit_s == pytest.approx(limit_s)
    assert objective.late_share_max == pytest.approx(1 - quantile)
    assert Objective.parse(str(objective)) == objective


@pytest.mark.parametrize(
    "text", ["", "fast", "99<200ms", "p99<200", "p100<1s", "p99<-1s", "p9 9<1s"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Objective.parse(text)
    assert "p99<200ms" in caught.value.hint and caught.value.param == "objective"


@pytest.mark.parametrize("text", ["p0<1s", "p99<0ms"])
def test_a_promise_nobody_can_keep_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be met"):
        Objective.parse(text)


def test_it_prints_as_it_is_written() -> None:
    assert str(Objective(0.99, 0.2)) == "p99 < 200 ms"
