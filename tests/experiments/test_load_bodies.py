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


def page(idle: int, full: int, *, rows: int, padded: int, useful: int) -> bytes:
    batches = idle + full
    return f"""# HELP headway_batches_total Batches
headway_batches_total{{model="m",reason="idle"}} {idle}
headway_batches_total{{model="m",reason="full"}} {full}
headway_rows_total{{model="m"}} {rows}
headway_padded_size_total{{model="m"}} {padded}
headway_useful_size_total{{model="m"}} {useful}
headway_batch_rows_bucket{{model="m",le="1"}} {idle}
headway_batch_rows_bucket{{model="m",le="2"}} {idle}
headway_batch_rows_bucket{{model="m",le="4"}} {batches}
headway_batch_rows_bucket{{model="m",le="+Inf"}} {batches}
headway_run_seconds_sum{{model="m"}} {0.01 * batches}
headway_run_seconds_count{{model="m"}} {batches}
""".encode()


def test_the_story_counts_only_batches_of_this_run() -> None:
    before = batch_story.read_metrics(page(5, 5, rows=25, padded=1000, useful=1000))
    after = batch_story.read_metrics(page(7, 11, rows=51, padded=1200, useful=1150))
    story = batch_story.tell(before, after, ["m: more clients"])
    assert story is not None
    assert (story.batches, story.rows_mean) == (8, 26 / 8)
    assert story.reasons == {"full": 6, "idle": 2}
    assert story.sizes == {"1": 2, "3-4": 6}
    assert story.padding_waste == pytest.approx(0.25)
    assert story.run_ms_mean == pytest.approx(10)
    table = dict(batch_story.story_rows(story))
    assert table["closed by"] == "full 6, idle 2"
    assert table["advice"] == "m: more clients"


def test_a_server_that_is_no_headway_has_no_story() -> None:
    assert batch_story.read_metrics(b"<html>") == {}
    assert batch_story.read_metrics(b'go_threads{x="y"} 3') == {}
    assert batch_story.read_advice(b"<html>") == batch_story.read_advice(b"[1]") == []
    assert batch_story.tell({}, {}, []) is None
