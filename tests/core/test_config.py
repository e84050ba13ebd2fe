"""Settings that cannot be honoured are refused before anything starts, by name."""

from __future__ import annotations

from dataclasses import fields
from math import nan
from typing import Any

import pytest

from headway.core.config import Config, ModelConfig, ServerConfig, key_of, validate
from headway.core.errors import ConfigError, UserError


def check(server: dict[str, Any] | None = None, *models: dict[str, Any]) -> None:
    parts = tuple(ModelConfig(**{"name": f"m{i}", **m}) for i, m in enumerate(models or ({},)))
    validate(Config(ServerConfig(**(server or {})), parts))


def refused(server: dict[str, Any] | None, *models: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check(server, *models)
    assert caught.value.status == 400 and caught.value.code == "bad_config"
    return caught.value


def test_the_defaults_are_valid() -> None:
    check()
    check(None, {"objective": "p99<200ms"}, {"policy": "deadline"})
    check(None, {"policy": "static", "batch_window_ms": 5.0, "pad_batches": True})
    check(None, {"padded_sizes": (1, 8, 32), "max_batch_size": 8})


@pytest.mark.parametrize("part", [ServerConfig, ModelConfig])
def test_every_bounded_setting_refuses_what_is_out_of_range(part: type) -> None:
    bounded = [f for f in fields(part) if f.metadata.get("low") is not None]
    assert len(bounded) >= 14
    for f in bounded:
        low, high = f.metadata["low"], f.metadata.get("high")
        wrong = [low - 1, nan] + ([low] if f.metadata.get("open") else [])
        wrong += [high + 1] if high is not None else []
        for value in wrong:
            args: tuple[Any, ...] = (
                ({f.name: value},) if part is ServerConfig else (None, {f.name: value})
            )
            error = refused(*args)
            assert error.param == key_of(f) and key_of(f) in error.message
            assert str(low) in error.hint
            assert high is None or str(high) in error.hint


@pytest.mark.parametrize("part", [ServerConfig, ModelConfig])
def test_every_choice_lists_what_can_be_chosen(part: type) -> None:
    for f in fields(part):
        if "choices" in f.metadata:
            args: tuple[Any, ...] = (
                ({f.name: "odd"},) if part is ServerConfig else (None, {f.name: "odd"})
            )
            error = refused(*args)
            assert "'odd'" in error.message
            assert all(choice in error.hint for choice in f.metadata["choices"])


def test_every_setting_says_what_it_means() -> None:
    for part in (ServerConfig, ModelConfig):
        for f in fields(part):
            assert f.metadata["help"], f.name
    assert key_of(next(f for f in fields(ModelConfig) if f.name == "weight_class")) == "class"


def test_b2_a_queue_smaller_than_a_batch_names_both_settings() -> None:
    for key in ("queue_requests_max", "queue_rows_max"):
        error = refused(None, {key: 4, "max_batch_size": 8})
        assert key in error.message and "max_batch_size (8)" in error.message
        assert "at least 8" in error.hint


def test_something_must_be_served_and_names_are_unique() -> None:
    with pytest.raises(ConfigError, match="no model"):
        validate(Config(ServerConfig(), ()))
    assert "two models" in refused(None, {"name": "a"}, {"name": "a"}).message


@pytest.mark.parametrize("sizes", [(0, 1), (4, 2), (2, 2)])
def test_padded_sizes_rise_from_one(sizes: tuple[int, ...]) -> None:
    assert refused(None, {"padded_sizes": sizes}).param == "padded_sizes"


def test_padded_sizes_that_never_fit_are_refused() -> None:
    error = refused(None, {"padded_sizes": (16, 32), "max_batch_size": 8})
    assert "16" in error.message and "max_batch_size (8)" in error.message


@pytest.mark.parametrize(
    ("model", "policy"),
    [
        ({"policy": "greedy", "batch_window_ms": 5.0}, "greedy"),
        ({"pad_batches": True}, "greedy"),
        ({"objective": "p99<1s", "batch_window_ms": 5.0}, "deadline"),
        ({"policy": "static", "hold": False}, "static"),
    ],
)
def test_b17_a_setting_without_effect_is_refused_and_the_policy_named(
    model: dict[str, Any], policy: str
) -> None:
    error = refused(None, model)
    assert error.message.endswith(f"does nothing under policy {policy}")


def test_an_objective_that_cannot_be_read_is_refused() -> None:
    assert refused(None, {"objective": "fast"}).param == "objective"


def test_a_config_error_is_a_user_error_with_a_hint() -> None:
    error = ConfigError("wrong", hint="do this", param="x")
    assert isinstance(error, UserError) and str(error) == "wrong"
    assert (error.hint, error.param, error.retry_after_s) == ("do this", "x", None)
