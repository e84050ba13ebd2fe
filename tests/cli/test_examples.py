"""The examples with real weights: the same answers through every API, and real clients."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.served import Server, get, post

np = pytest.importorskip("numpy")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

TEXTS = ["a dog runs", "a puppy is running", "the stock market fell sharply on Monday " * 4]


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    """`examples/embed_onnx.py`, as `make demo KEEP=1` serves it, with a short warm-up."""
    server = Server("minilm=examples/embed_onnx.py", "--warmup-s-max", "0.5")
    yield server.until()
    assert server.end() == 0


def embed(root: str, *texts: str) -> Any:
    status, answer = post(f"{root}/v1/embeddings", {"model": "minilm", "input": list(texts)})
    assert status == 200, answer
    return np.array([entry["embedding"] for entry in answer["data"]], dtype=np.float32)


def test_embeddings_mean_something(root: str) -> None:
    a, b, c = embed(root, *TEXTS)
    assert a.shape == (384,)
    assert np.linalg.norm(a) == pytest.approx(1, abs=1e-3)
    assert a @ b > 0.6
    assert a @ c < 0.3


def test_batching_changes_no_answer(root: str) -> None:
    """Texts of very different length, together and alone (int8 weights: small rounding)."""
    alone = np.stack([embed(root, text)[0] for text in TEXTS])
    together = embed(root, *TEXTS)
    assert np.einsum("ij,ij->i", alone, together) == pytest.approx(np.ones(3), abs=0.02)


def test_the_official_openai_client(root: str) -> None:
    """Its default is base64."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{root}/v1", api_key="none", max_retries=0)
    assert [m.id for m in client.models.list()] == ["minilm"]
    answer = client.embeddings.create(model="minilm", input=TEXTS)
    got = np.array([d.embedding for d in answer.data], dtype=np.float32)
    assert got == pytest.approx(embed(root, *TEXTS), abs=0.02)
    assert [d.index for d in answer.data] == [0, 1, 2]


def test_the_triton_client_with_binary_tensors(root: str) -> None:
    http = pytest.importorskip("tritonclient.http")
    client = http.InferenceServerClient(root.removeprefix("http://"))
    assert client.is_server_ready() and client.is_model_ready("minilm")
    assert client.get_model_metadata("minilm")["inputs"][0]["datatype"] == "BYTES"
    text = http.InferInput("text", [len(TEXTS)], "BYTES")
    text.set_data_from_numpy(np.array(TEXTS, dtype=np.object_), binary_data=True)
    wanted = http.InferRequestedOutput("embedding", binary_data=True)
    got = client.infer("minilm", [text], outputs=[wanted]).as_numpy("embedding")
    assert got.shape == (3, 384) and got.dtype == np.float32
    assert got == pytest.approx(embed(root, *TEXTS), abs=0.02)


def test_curl_lines_of_the_readme(root: str) -> None:
    document = {"model": "minilm", "input": ["a text", "another one"]}
    status, answer = post(f"{root}/v1/embeddings", document)
    assert status == 200 and answer["usage"]["prompt_tokens"] >= 0
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a text"]}
    status, answer = post(f"{root}/v2/models/minilm/infer", {"inputs": [tensor]})
    assert status == 200 and answer["outputs"][0]["shape"] == [1, 384]
    with urllib.request.urlopen(f"{root}/metrics", timeout=10) as page:
        assert b"headway_batches_total" in page.read()
    batches = get(f"{root}/debug/batches?last=5")["batches"]
    assert batches and all(b["reason"] for b in batches)


def test_a_wrong_item_fails_alone(root: str) -> None:
    status, answer = post(f"{root}/predict", {"txet": "oops"})
    assert status == 422, json.dumps(answer)
    assert "text" in json.dumps(answer)
