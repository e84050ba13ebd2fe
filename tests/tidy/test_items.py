"""Every complaint of users that this server must not repeat has a test that names it.

An id is named by a test function, as in `test_b9_...` or `test_c1_c4_...`. B is batch formation and
isolation of items, Q queues and overload, C cancellation and time-outs, H health, start, shutdown
and leaks.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

ITEMS = {
    "b1": "what waits behind a busy worker is merged; a delay matters only when one is idle",
    "b2": "caps that starve batches are refused, naming both settings",
    "b3": "a strictly sequential client is told so",
    "b4": "more waiting work never makes smaller batches",
    "b5": "models that take a list get one list, whatever the shapes",
    "b6": "unequal lengths are grouped; the waste of padding is bounded and told",
    "b7": "the smallest allowed size runs, padded rows are counted",
    "b8": "models are isolated; a misfit names tensor, dimension and what to set",
    "b9": "an item fails alone, with its own status",
    "b10": "an exception fails its batch with an id; the worker survives; one traceback",
    "b11": "completing a cancelled caller is a no-op",
    "b12": "a body that never ends holds nobody up",
    "b13": "a wrong number of results is an error that names both numbers",
    "b14": "one value for a batch is an error and never split",
    "b15": "no batch is above the maximum",
    "b16": "window, queue limit and objective are three things; a lone request is never shed",
    "b17": "what is switched off does nothing",
    "b18": "the settings in effect are shown; unknown or idle keys are errors",
    "b19": "a lone request is not held once arrivals are sparse",
    "b20": "it is told when batching does not help",
    "b21": "no batch exceeds its budget of size",
    "b22": "one large request is split and joined",
    "b23": "concurrent binary uploads come back whole",
    "b24": "each stream ends on its own and its row is used again",
    "q1": "overload is refused at once and bounded by default",
    "q2": "the queue is bounded by size, too",
    "q3": "one decision counts all but what runs",
    "q4": "full means an immediate answer",
    "q5": "full is a 429 with a type and Retry-After, no traceback",
    "q6": "limits are exact",
    "q7": "priority and deadline count when a batch is formed",
    "q10": "Retry-After is the backlog over the rate",
    "c1": "a client that leaves is seen while it waits",
    "c2": "workers hear of it, streams close within a step",
    "c3": "the place is freed promptly, with streams and without",
    "c4": "a queued request whose client left never runs",
    "c7": "a stream holds its place until it ends",
    "c8": "a place is taken until the work truly stops",
    "c9": "work that never returns is a 504 and a new worker",
    "c10": "recovery works again and again, with growing pauses",
    "c11": "a time-out has its own status and type",
    "c12": "limits for waiting, running, silence and the whole stay apart",
    "h1": "a frozen worker is not ready, pending work without progress not live",
    "h2": "health is quick while everything is busy",
    "h3": "a dead worker flips readiness at once and comes back",
    "h4": "unknown is not ready",
    "h5": "a failing start ends with the cause and a code",
    "h7": "at the end: readiness off, still serving, drain, unload",
    "h8": "streams in flight complete before the exit",
    "h9": "an idle server lingers as well",
    "h10": "warm-up covers sizes and lengths, gates readiness and reports",
    "h11": "phases are named and machine-readable",
    "h12": "a model that loads later does not make the server unready",
    "h13": "workers die with their parent",
    "h14": "nothing is left behind",
    "h15": "a stream's memory is constant",
}
_ID = re.compile(r"(?<=_)[bqch]\d+(?=_|$)")


@cache
def named() -> dict[str, list[str]]:
    """Tests by the ids in their names."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_"):
                for item in _ID.findall(node.name):
                    found.setdefault(item, []).append(f"{path.name}::{node.name}")
    return found


@pytest.mark.parametrize("item", ITEMS)
def test_every_item_has_a_test_that_names_it(item: str) -> None:
    assert named().get(item), f"no test names {item}: {ITEMS[item]}"


def test_no_test_names_an_item_that_does_not_exist() -> None:
    unknown = {item: tests for item, tests in named().items() if item not in ITEMS}
    assert not unknown
