"""Tests of this room that meet a real loop run on both: asyncio's own and the one we serve on."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

_ON_BOTH = {"test_clock", "test_lifecycle"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give such tests the loop as a parameter."""
    if metafunc.module.__name__.rpartition(".")[2] in _ON_BOTH:
        metafunc.fixturenames.append("event_loop_policy")
        metafunc.parametrize("event_loop_policy", ["asyncio", "uvloop"], indirect=True)


@pytest.fixture
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """asyncio's own loop unless the test asks for uvloop."""
    if getattr(request, "param", "asyncio") == "uvloop":
        return uvloop.EventLoopPolicy()
    return asyncio.DefaultEventLoopPolicy()
