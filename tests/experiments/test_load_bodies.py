"""Bodies for load, and what a server's batches tell."""

from __future__ import annotations

import json

import pytest
from headway.core.errors import ConfigError
from headway.experiments import batch_story
from headway.experiments.load_bodies import lines, text_body, texts


def test_texts_mix_lengths_and_repeat_by_seed() -> None:
    made = texts(500, low=5, high=200, seed=3)
    lengths = sorted(len(t.split()) for t in made)
    assert made == texts(500, low=5, high=200, seed=3) != texts(500, seed=4)
    assert (lengths[0], lengths[-1]) == (5, pytest.approx(200, abs=5))
    assert lengths[250] < 50, "half are short"


def test_a_text_takes_the_shape_of_its_route() -> None:
    assert json.loads(text_body("/v1/embeddings", "hi", "m")) == {"model": "m", "input": "hi"}
    assert json.loads(text_body("/predict/m", "hi", "")) == {"text": "hi"}
    (tensor,) = json.loads(text_body("/v2/models/m/infer", "hi", ""))["inputs"]
    assert tensor == {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["hi"]}


def test_bodies_are_lines_of_a_file() -> None:
    assert lines(b'{"a":1}\n\n{"b":2}\n', "f") == [b'{"a":1}', b'{"b":2}']
    with pytest.raises(ConfigError, match="f holds no body"):
        lines(b"\n", "f")


RECORD = {
    "model": "m", "batch_id": 1, "rows": 4, "reason": "idle", "waits_s": [0.0, 0.01],
    "run_s": 0.02, "padding_waste": 0.5,
}  # fmt: skip


def test_the_story_counts_only_batches_of_this_run() -> None:
    newer = {
        **RECORD,
        "batch_id": 2,
        "rows": 8,
        "reason": "full",
        "run_s": 0.06,
        "padding_waste": 0.1,
    }
    (kept,) = batch_story.since([newer, RECORD], [RECORD])
    assert kept is newer
    story = batch_story.tell([newer, RECORD], [])
    assert story is not None
    assert story.sizes == {4: 1, 8: 1} and story.reasons == {"full": 1, "idle": 1}
    assert story.padding_waste == pytest.approx(0.2), "weighted by run time"
    assert dict(batch_story.story_rows(story))["batch sizes"] == "4-7: 1  8-15: 1"


def test_a_server_that_is_no_headway_has_no_story() -> None:
    assert batch_story.read_batches(b"<html>") == ([], [])
    assert batch_story.read_batches(b'{"batches": 3}') == ([], [])
    assert batch_story.tell([], []) is None
