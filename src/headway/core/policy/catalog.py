"""Names of policies, one dictionary per kind."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.config import ModelConfig
from headway.core.policy.batching import BatchingPolicy, Deadline, Greedy, Static

BATCHING: dict[str, Callable[[ModelConfig], BatchingPolicy]] = {
    "greedy": Greedy,
    "deadline": Deadline,
    "static": Static,
}
