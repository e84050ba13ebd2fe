"""Configuration: precedence, origins, unknown keys, values that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from headway.cli.load_config import Loaded, Sources, load, name_of
from headway.cli.settings import BY_KEY, MODEL, SERVER
from headway.core.errors import ConfigError


def loaded(*paths: str, file: Any = None, environ: Any = None, **flags: Any) -> Loaded:
    return load(
        Sources(
            paths=paths or ("app.py",),
            flags={k.replace("__", "."): v for k, v in flags.items()},
            environ=environ or {},
            file=file or {},
            file_name="headway.yaml" if file else "",
        )
    )


def test_b18_flag_beats_environment_beats_file_beats_default() -> None:
    """B18: what counts is visible: every value has its origin."""
    file = {"port": 1, "host": "h1", "linger_s": 1.0}
    environ = {"HEADWAY_PORT": "2", "HEADWAY_HOST": "h2"}
    result = loaded(file=file, environ=environ, port=3)
    server = result.config.server
    assert (server.port, server.host, server.linger_s, server.drain_s_max) == (3, "h2", 1.0, 30.0)
    origins = {
        k: result.origins[f"server.{k}"] for k in ("port", "host", "linger_s", "drain_s_max")
    }
    assert origins == {
        "port": "flag",
        "host": "environment",
        "linger_s": "file headway.yaml",
        "drain_s_max": "default",
    }


def test_every_setting_has_an_origin() -> None:
    result = loaded()
    expected = {f"server.{s.key}" for s in SERVER} | {f"app.{s.key}" for s in MODEL}
    assert set(result.origins) == expected


@pytest.mark.parametrize(
    ("file", "environ", "near"),
    [
        ({"max_batchsize": 4}, {}, "max_batch_size"),
        ({"models": [{"path": "a.py", "max-batch-sise": 4}]}, {}, "max_batch_size"),
        ({}, {"HEADWAY_MAX_BATCH_SZIE": "4"}, "HEADWAY_MAX_BATCH_SIZE"),
    ],
)
def test_b18_unknown_key_is_an_error_naming_the_nearest(file: Any, environ: Any, near: str) -> None:
    """B18: unknown keys are errors."""
    with pytest.raises(ConfigError) as caught:
        loaded(file=file, environ=environ)
    assert near in caught.value.hint


def test_b18_a_setting_that_does_nothing_is_an_error() -> None:
    """B18: unused keys are errors, naming the setting and what makes it useless."""
    with pytest.raises(ConfigError, match="batch_window_ms does nothing under policy greedy"):
        loaded(batch_window_ms=5.0)
    assert loaded(batch_window_ms=5.0, policy="static").config.models[0].batch_window_ms == 5.0


def test_b2_caps_that_starve_batches_are_refused_naming_both() -> None:
    """B2: a queue too small for a full batch cannot be configured."""
    with pytest.raises(ConfigError) as caught:
        loaded(queue_requests_max=4, max_batch_size=8)
    assert "queue_requests_max" in caught.value.message
    assert "max_batch_size" in caught.value.message


def test_b2_few_connections_are_warned_about() -> None:
    """B2: an upstream cap below the batch size is not impossible, so it warns, naming both."""
    (warning,) = loaded(connections_max=4, max_batch_size=8).warnings
    assert "connections_max" in warning and "max_batch_size" in warning
    assert loaded(connections_max=8, max_batch_size=8).warnings == []


def test_b2_a_queue_that_bounds_batches_is_warned_about() -> None:
    """B2: a short queue is a choice; that it keeps batches small is said."""
    (warning,) = loaded(queue_requests_max=4).warnings
    assert "queue_requests_max (4)" in warning and "max_batch_size" in warning
    assert loaded(queue_requests_max=4, max_batch_size=4).warnings == []


def test_h2_a_liveness_limit_below_the_longest_batch_is_warned_about() -> None:
    """H2: a busy server must not be taken for a dead one."""
    (warning,) = loaded(run_s_max=120.0).warnings
    assert "live_stall_s (60)" in warning and "run_s_max (120)" in warning
    assert loaded(run_s_max=120.0, live_stall_s=120.0).warnings == []


def test_policy_follows_from_the_objective() -> None:
    result = loaded(objective="p99<200ms")
    assert result.config.models[0].policy == "deadline"
    assert result.origins["app.policy"] == "derived from objective"
    assert loaded().config.models[0].policy == "greedy"
    chosen = loaded(objective="p99<200ms", policy="greedy")
    assert (chosen.config.models[0].policy, chosen.origins["app.policy"]) == ("greedy", "flag")


def test_per_model_overrides() -> None:
    file = {
        "max_batch_size": 32,
        "models": [
            {"name": "fast", "path": "a.py", "class": "light"},
            {"name": "slow", "path": "b.py:B", "class": "heavy", "max-batch-size": 4},
        ],
    }
    result = load(Sources(file=file, file_name="f", flags={"fast.workers": "2"}))
    fast, slow = result.config.models
    assert (fast.name, fast.weight_class, fast.max_batch_size, fast.workers) == (
        "fast",
        "light",
        32,
        2,
    )
    assert (slow.name, slow.weight_class, slow.max_batch_size, slow.workers) == (
        "slow",
        "heavy",
        4,
        1,
    )
    assert result.origins["fast.workers"] == "flag"
    assert result.origins["slow.class"] == "file f"


def test_several_models_on_the_line() -> None:
    models = loaded("x/a.py", "b.onnx", "org/hub-name", "c=a2.py:C").config.models
    assert [m.name for m in models] == ["a", "b", "hub-name", "c"]
    assert models[3].path == "a2.py:C"
    with pytest.raises(ConfigError, match="two models are named 'a'"):
        loaded("a.py", "x/a.py")


def test_a_model_on_the_line_keeps_its_entry_in_the_file() -> None:
    file = {"models": [{"name": "m", "path": "a.py", "workers": 3}, {"path": "other.py"}]}
    (model,) = loaded("a.py", file=file).config.models
    assert (model.name, model.workers) == ("m", 3)


def test_kubernetes_service_links_are_not_settings() -> None:
    """A service named headway puts HEADWAY_PORT=tcp://... into every pod."""
    environ = {
        "HEADWAY_PORT": "tcp://10.0.0.1:8000",
        "HEADWAY_SERVICE_HOST": "10.0.0.1",
        "HEADWAY_PORT_8000_TCP_ADDR": "10.0.0.1",
    }
    assert loaded(environ=environ).config.server.port == 8000


@pytest.mark.parametrize(
    ("environ", "key", "value"),
    [
        ("true", "hold", True),
        ("0", "hold", False),
        ("1,4, 8", "padded_sizes", (1, 4, 8)),
        ("none", "max_batch_size", None),
        ("16", "max_batch_size", 16),
        ("2.5", "run_s_max", 2.5),
    ],
)
def test_values_from_the_environment(environ: str, key: str, value: Any) -> None:
    result = loaded(environ={BY_KEY[key].env: environ})
    assert getattr(result.config.models[0], BY_KEY[key].attr) == value


@pytest.mark.parametrize(
    "file",
    [
        {"port": "8000"},
        {"port": True},
        {"port": 80000},
        {"hold": "yes"},
        {"padded_sizes": ["a"]},
        {"padded_sizes": [8, 4]},
        {"policy": "greedyy"},
        {"objective": "fast"},
        {"name": "m"},
        {"models": [{"name": "m"}]},
        {"models": ["a.py", {"path": "x/a.py"}]},
        {"models": "a.py"},
    ],
)
def test_values_that_cannot_be_are_refused(file: Any) -> None:
    with pytest.raises(ConfigError):
        load(Sources(paths=() if "models" in file else ("a.py",), file=file, file_name="f"))


def test_no_model_is_an_error_with_a_way_out() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Sources())
    assert "headway serve app.py" in caught.value.hint


def test_keys_are_unique_across_server_and_model() -> None:
    keys = [s.key for s in (*SERVER, *MODEL)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b.py:C", "b"),
        ("m.onnx", "m"),
        ("dir/model/", "model"),
        ("o/x-1.5", "x-1.5"),
        ("mock",) * 2,
    ],
)
def test_name_of(path: str, name: str) -> None:
    assert name_of(path) == name
