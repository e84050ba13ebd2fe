"""A light model beside a heavy one that is half busy: neither starves the other."""

from __future__ import annotations

from tests.core.stage import Stage, overlaps, pair
from tests.core.traffic import poisson


def test_a_light_model_waits_at_most_a_slot_beside_a_heavy_one() -> None:
    alone = Stage("1b", name="light")
    quiet = poisson(alone, 100.0, 12.0)
    alone.world.run()
    world, light, heavy = pair("1b", "10b", max_batch_size=16)
    beside = poisson(light, 100.0, 12.0)
    load = poisson(heavy, 50.0, 12.0, seed=2)
    world.run()
    assert beside.refused == load.refused == 0
    assert beside.quantile(0.99) <= quiet.quantile(0.99) + 1.25 * 0.020
    assert overlaps(light, heavy) == 0
