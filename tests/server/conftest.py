"""Tests of this room that meet a real loop run on both: asyncio's own and the one we serve on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

_ON_BOTH = {"test_clock", "test_lifecycle"}


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops a test runs on, one after the other."""
    if item.module.__name__.rpartition(".")[2] in _ON_BOTH:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
