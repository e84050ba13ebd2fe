"""OpenAI's embeddings, bytes to values and back."""

from __future__ import annotations

import json
from array import array
from base64 import b64decode

import pytest

from headway.core.errors import UserError
from headway.core.wire.openai import (
    embeddings_answer,
    model_entry,
    model_list,
    parse_embeddings,
    vector,
)


def test_one_text() -> None:
    call = parse_embeddings(b'{"input": "h\\u00e9 \\"x\\"", "model": "m", "user": "u"}')
    assert [json.loads(p) for p in call.payloads] == [{"text": 'hé "x"'}]
    assert (call.model, call.base64, call.dimensions, call.priority) == ("m", False, None, 0)


def test_s10_a_list_is_one_payload_per_text_in_order() -> None:
    texts = [f"text {i}" for i in range(129)]
    body = json.dumps({"input": texts, "encoding_format": "base64", "priority": 1}).encode()
    call = parse_embeddings(body)
    assert [json.loads(p)["text"] for p in call.payloads] == texts
    assert (call.model, call.base64, call.priority) == ("", True, 1)


def test_token_ids_are_one_input_or_many() -> None:
    one = parse_embeddings(b'{"input": [1, 22, 3]}')
    assert [json.loads(p) for p in one.payloads] == [{"token_ids": [1, 22, 3]}]
    assert one.token_ids == 3
    many = parse_embeddings(b'{"input": [[1, 2], [3]], "dimensions": 4}')
    assert [json.loads(p) for p in many.payloads] == [{"token_ids": [1, 2]}, {"token_ids": [3]}]
    assert (many.token_ids, many.dimensions) == (3, 4)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "missing or empty"),
        (b'{"input": []}', "missing or empty"),
        (b'{"input": ["a", 1]}', "mixes kinds"),
        (b'{"input": [null]}', "mixes kinds"),
        (b'{"input": [["a"]]}', "Expected `int`"),
        (b'{"input": [1.5]}', "Expected `int`"),
        (b'{"input": 3}', "$.input"),
        (b'{"input": "a", "dimensions": 0}', "dimensions is 0"),
        (b'{"input": "a"', "not JSON"),
        (b'{"input": "a", "encoding_format": "hex"}', "hex"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_embeddings(body)
    assert caught.value.status == 400
    assert words in caught.value.message


RAW = array("f", [3.0, 4.0, 12.0]).tobytes()


def test_s9_float_and_base64_are_the_same_numbers() -> None:
    assert vector(RAW, dimensions=None, base64=False) == [3.0, 4.0, 12.0]
    text = vector(RAW, dimensions=3, base64=True)
    assert isinstance(text, str)
    assert b64decode(text) == RAW


def test_fewer_dimensions_are_cut_and_renormalised() -> None:
    assert vector(RAW, dimensions=2, base64=False) == pytest.approx([0.6, 0.8])
    zero = array("f", [0.0, 0.0, 1.0]).tobytes()
    assert vector(zero, dimensions=2, base64=False) == [0.0, 0.0]
    with pytest.raises(UserError, match="the model gives 3"):
        vector(RAW, dimensions=4, base64=False)


def test_answers() -> None:
    answer = json.loads(embeddings_answer("m", [[1.0], [2.0]], 7).body)
    assert [d["index"] for d in answer["data"]] == [0, 1]
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert json.loads(model_list(["a", "b"], 5).body)["data"] == [
        model_entry("a", 5),
        {"id": "b", "object": "model", "created": 5, "owned_by": "headway"},
    ]
