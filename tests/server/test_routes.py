"""Routes, over the ASGI application and over the fast lane: one code path, so one set of tests."""

from __future__ import annotations

import asyncio
import json
import struct
from array import array
from base64 import b64decode
from typing import Any

import httpx
import pytest

from headway.core.ports import ModelInfo, TensorSpec
from headway.core.request import Codec, ItemResult, Request
from headway.core.wire.frame import pack_tensors, unpack_tensors
from headway.server.app import App
from tests.server.toy import ToyRuntime, make_service
from tests.server.wires import Wire, answers, post

pytestmark = pytest.mark.asyncio
EMBED = ModelInfo("m", embeds=True)
SUM = ModelInfo(
    "m",
    version="1",
    inputs=(TensorSpec("x", "FP32", (-1, 2)),),
    outputs=(TensorSpec("y", "FP32", (-1,)),),
)


def client(service: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(App(service)), base_url="http://headway")


def embed(request: Request) -> ItemResult:
    item = json.loads(request.payload)
    assert request.codec is Codec.EMBED
    number = float(len(item.get("text", ""))) if "text" in item else float(sum(item["token_ids"]))
    return ItemResult(200, array("f", [number, 0.5]).tobytes(), size=3.0)


def add(request: Request) -> ItemResult:
    """Sums rows of x; answers in the form asked for."""
    item = unpack_tensors(request.payload)
    name, _, shape, raw, text = item.parts[0]
    assert request.codec is Codec.TENSORS
    assert request.rows == shape[0]
    flat = list(struct.unpack(f"<{2 * shape[0]}f", raw)) if raw is not None else None
    if flat is None:
        nested = json.loads(bytes(text or b""))
        flat = [v for row in nested for v in (row if isinstance(row, list) else [row])]
    sums = [flat[i] + flat[i + 1] for i in range(0, len(flat), 2)]
    binary = item.wanted[0][1] if item.wanted else item.binary
    data = array("f", sums).tobytes() if binary else None
    told = None if binary else json.dumps(sums).encode()
    assert name == "x"
    return ItemResult(200, pack_tensors([("y", "FP32", [shape[0]], data, told)]))


async def test_predict_is_the_only_models_or_names_one() -> None:
    one = make_service(ToyRuntime())
    async with client(one) as c:
        assert (await c.post("/predict", json={"a": 1})).json() == {"a": 1}
        assert (await c.post("/predict/m", json=[1])).json() == [1]
    two = make_service(ToyRuntime(), ToyRuntime(), names="mn")
    async with client(two) as c:
        answer = await c.post("/predict", json=1)
        assert answer.status_code == 404
        assert "m, n" in answer.json()["hint"]
        assert (await c.post("/predict/n", json=[1])).json() == [1]
        missing = await c.post("/predict/o", json=1)
        assert missing.status_code == 404
        assert missing.json()["code"] == "model_not_found"
        assert "m, n" in missing.json()["hint"]


async def test_unknown_paths_and_methods() -> None:
    async with client(make_service(ToyRuntime())) as c:
        assert (await c.get("/nothing")).status_code == 404
        wrong = await c.get("/predict")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, OPTIONS")
        assert (await c.post("/readyz")).headers["allow"] == "GET, HEAD, OPTIONS"
        assert (await c.options("/predict")).status_code == 204
        assert (await c.request("BREW", "/predict")).status_code == 405
        assert "error" in (await c.get("/v2/nothing")).json()
        assert (await c.get("/v1/nothing")).json()["error"]["param"] is None
        assert (await c.head("/readyz")).status_code == 200


async def test_every_answer_carries_the_request_id() -> None:
    async with client(make_service(ToyRuntime())) as c:
        for method, path in (("GET", "/livez"), ("GET", "/no"), ("POST", "/predict")):
            answer = await c.request(method, path, headers={"x-request-id": "r1"}, content=b"1")
            assert answer.headers["x-request-id"] == "r1"
            assert (await c.request(method, path, content=b"1")).headers["x-request-id"]


async def test_starting_is_503_with_the_phase() -> None:
    runtime = ToyRuntime()
    runtime.up, runtime.phase, runtime.info = False, "load", None
    service = make_service(runtime)
    async with client(service) as c:
        answer = await c.post("/predict", json=1)
        assert answer.status_code == 503
        assert answer.json()["code"] == "starting"
        assert "load" in answer.json()["detail"]
        assert answer.headers["retry-after"] == "1"
        assert (await c.post("/v2/models/m/infer", json={"inputs": []})).status_code == 503
        runtime.up = True
        assert (await c.post("/predict", json=1)).status_code == 200
        runtime.up = False
        assert (await c.post("/predict", json=1)).status_code == 200, "now it is the runtime's say"


async def test_s9_embeddings_as_floats_and_base64() -> None:
    runtime = ToyRuntime(embed)
    runtime.info = EMBED
    async with client(make_service(runtime)) as c:
        floats = (await c.post("/v1/embeddings", json={"input": "abc", "model": "m"})).json()
        assert floats["data"] == [{"object": "embedding", "index": 0, "embedding": [3.0, 0.5]}]
        assert floats["model"] == "m"
        assert floats["usage"]["prompt_tokens"] == 1
        coded = {"input": ["abc"], "encoding_format": "base64"}
        text = (await c.post("/v1/embeddings", json=coded)).json()["data"][0]["embedding"]
        assert array("f", b64decode(text)).tolist() == [3.0, 0.5]
        ids = (await c.post("/v1/embeddings", json={"input": [[1, 2], [5]]})).json()
        assert [d["embedding"][0] for d in ids["data"]] == [3.0, 5.0]
        assert ids["usage"]["total_tokens"] == 3
        runtime.info = ModelInfo("m", embeds=True, size_unit="tokens")
        counted = (await c.post("/v1/embeddings", json={"input": ["a", "b"]})).json()
        assert counted["usage"]["prompt_tokens"] == 6
        cut = await c.post("/v1/embeddings", json={"input": "a", "dimensions": 9})
        assert (cut.status_code, cut.json()["error"]["param"]) == (400, "dimensions")


async def test_s10_a_list_longer_than_a_batch_comes_back_in_order() -> None:
    wire = Wire()
    wire.runtime.info, wire.runtime.answer, wire.runtime.hold = EMBED, embed, True
    texts = ["x" * i for i in range(129)]
    wire.feed(post(json.dumps({"input": texts}).encode(), "/v1/embeddings"))
    assert len(wire.runtime.waiting) == 129
    while wire.runtime.waiting:
        wire.runtime.release(-1)
    [(status, _, body)] = answers(wire.pipe.sent)
    assert status == 200
    assert [d["embedding"][0] for d in json.loads(body)["data"]] == [float(i) for i in range(129)]


async def test_one_input_that_fails_fails_the_call_and_frees_the_rest() -> None:
    wire = Wire()
    wire.runtime.info, wire.runtime.answer, wire.runtime.hold = EMBED, embed, True
    body = json.dumps({"input": ["a", "b", "c"], "priority": 1}).encode()
    wire.feed(post(body, "/v1/embeddings"))
    assert [r.priority for r in wire.runtime.waiting] == [1, 1, 1]
    wire.runtime.release(1, ItemResult(422, b"too long", code="too_long"))
    [(status, _, told)] = answers(wire.pipe.sent)
    assert (status, json.loads(told)["error"]["code"]) == (422, "too_long")
    assert wire.runtime.waiting == []


async def test_a_refused_first_input_submits_no_more() -> None:
    runtime = ToyRuntime(lambda _: ItemResult(429, b"full", code="queue_full"))
    runtime.info = EMBED
    async with client(make_service(runtime)) as c:
        answer = await c.post("/v1/embeddings", json={"input": ["a", "b", "c"]})
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "queue_full"
    assert len(runtime.seen) == 1


async def test_openai_errors() -> None:
    runtime = ToyRuntime()
    async with client(make_service(runtime)) as c:
        unknown = await c.post("/v1/embeddings", json={"input": "a", "model": "gpt"})
        assert unknown.status_code == 404
        assert unknown.json()["error"]["code"] == "model_not_found"
        broken = await c.post("/v1/embeddings", content=b'{"input": ')
        assert broken.status_code == 400
        assert "byte" in broken.json()["error"]["message"]
        assert (await c.post("/v1/embeddings", json={"input": "a"})).status_code == 400


async def test_models_list() -> None:
    async with client(make_service(ToyRuntime(), ToyRuntime(), names="mn")) as c:
        listed = (await c.get("/v1/models")).json()
        assert [d["id"] for d in listed["data"]] == ["m", "n"]
        assert (await c.get("/v1/models/n")).json()["object"] == "model"
        assert (await c.get("/v1/models/o")).json()["error"]["code"] == "model_not_found"


async def test_infer_in_json_and_binary() -> None:
    runtime = ToyRuntime(add)
    runtime.info = SUM
    x = {"name": "x", "shape": [2, 2], "datatype": "FP32"}
    async with client(make_service(runtime)) as c:
        answer = await c.post(
            "/v2/models/m/infer", json={"id": "7", "inputs": [{**x, "data": [1, 2, 3, 4]}]}
        )
        assert answer.json() == {
            "model_name": "m",
            "model_version": "1",
            "id": "7",
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [3.0, 7.0]}],
        }
        document = {
            "inputs": [{**x, "parameters": {"binary_data_size": 16}}],
            "parameters": {"binary_data_output": True, "priority": 1, "timeout": 500_000},
        }
        head = json.dumps(document).encode()
        answer = await c.post(
            "/v2/models/m/versions/1/infer",
            content=head + struct.pack("<4f", 1, 2, 3, 4),
            headers={"Inference-Header-Content-Length": str(len(head))},
        )
        size = int(answer.headers["inference-header-content-length"])
        assert struct.unpack("<2f", answer.content[size:]) == (3.0, 7.0)
        last = runtime.seen[-1]
        assert last.priority == 1
        assert last.expires_s - last.arrival_s == pytest.approx(0.5)
        wrong = await c.post(
            "/v2/models/m/infer",
            json={"inputs": [{**x, "datatype": "INT8", "data": [1, 2, 3, 4]}]},
        )
        assert wrong.status_code == 400
        assert "'x' has datatype INT8, wanted FP32" in wrong.json()["error"]
        assert wrong.headers["headway-error-code"] == "bad_tensor"
        assert (await c.post("/v2/models/n/infer", json={})).status_code == 404
        assert (await c.post("/v2/models/m/versions/2/infer", json={})).status_code == 404


async def test_b8_two_models_with_one_input_name_do_not_mix() -> None:
    runtimes = [ToyRuntime(), ToyRuntime()]
    for runtime, length in zip(runtimes, (10, 20), strict=True):
        runtime.answer = lambda r: ItemResult(200, pack_tensors([("y", "FP32", [1], None, b"[1]")]))
        runtime.info = ModelInfo("m", inputs=(TensorSpec("x", "FP32", (-1, length)),))

    def body(length: int) -> dict[str, Any]:
        return {"inputs": [{"name": "x", "shape": [1, length], "datatype": "FP32",
                            "data": [0] * length}]}  # fmt: skip

    async with client(make_service(*runtimes, names="mn")) as c:
        calls = [c.post(f"/v2/models/{name}/infer", json=body(n)) for name, n in
                 (("m", 10), ("n", 20), ("m", 10), ("n", 20))]  # fmt: skip
        assert [a.status_code for a in await asyncio.gather(*calls)] == [200] * 4
        assert [len(r.seen) for r in runtimes] == [2, 2]
        wrong = await c.post("/v2/models/m/infer", json=body(20))
    assert wrong.status_code == 400
    assert "'x' has shape [1, 20], wanted [-1, 10]" in wrong.json()["error"]
    assert "-1 stands for any size" in wrong.json()["error"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v2/models/m/infer"])
async def test_json_cut_in_the_middle_is_400_with_its_place(path: str) -> None:
    runtime = ToyRuntime()
    runtime.info = ModelInfo("m", embeds=True)
    async with client(make_service(runtime)) as c:
        answer = await c.post(path, content=b'{"input":\n ["a", ')
    assert answer.status_code == 400
    assert "byte 17, line 2, column 8" in answer.text
    assert runtime.seen == []


async def test_b22_more_rows_than_a_batch_holds_are_split_and_joined() -> None:
    runtime = ToyRuntime(add)
    runtime.info, runtime.rows_max = SUM, 4
    data = list(range(20))
    x = {"name": "x", "shape": [10, 2], "datatype": "FP32", "data": data}
    async with client(make_service(runtime)) as c:
        answer = await c.post("/v2/models/m/infer", json={"inputs": [x]})
    assert [r.rows for r in runtime.seen] == [4, 4, 2]
    out = answer.json()["outputs"][0]
    assert out["shape"] == [10]
    assert out["data"] == [float(4 * i + 1) for i in range(10)]


async def test_a_piece_that_fails_or_is_no_tensor_fails_the_call() -> None:
    wire = Wire()
    wire.runtime.info, wire.runtime.rows_max, wire.runtime.hold = SUM, 1, True
    x = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}
    call = post(json.dumps({"inputs": [x]}).encode(), "/v2/models/m/infer")
    wire.feed(call)
    wire.runtime.release(1, ItemResult(422, b"no", code="item_error"))
    assert wire.runtime.waiting == []
    wire.feed(call)
    wire.runtime.release(0, ItemResult(200, b"junk"))
    assert [s for s, _, _ in answers(wire.pipe.sent)] == [422, 500]
    assert wire.service.in_flight == 0
    wire.feed(call)
    wire.lose()
    assert wire.runtime.waiting == []


async def test_v2_metadata_and_statistics() -> None:
    runtime = ToyRuntime()
    runtime.info = SUM
    async with client(make_service(runtime)) as c:
        assert (await c.get("/v2")).json()["name"] == "headway"
        assert (await c.get("/v2/")).json()["version"] == "0.1"
        assert (await c.get("/v2/models/m")).json()["inputs"][0]["name"] == "x"
        assert (await c.get("/v2/models/m/versions/1")).json()["versions"] == ["1"]
        assert (await c.get("/v2/health/live")).json() == {"live": True}
        assert (await c.get("/v2/models/m/ready")).json() == {"name": "m", "ready": True}
        told = (await c.get("/v2/models/m/stats")).json()["model_stats"][0]
        assert told["inference_stats"]["queue"] == {"count": 0, "ns": 0}
        assert (await c.get("/v2/models/stats")).json()["model_stats"][0]["name"] == "m"


async def test_docs_need_no_network_and_know_the_schema() -> None:
    runtime = ToyRuntime()
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    runtime.info = ModelInfo("m", schema_in=schema, schema_out={"type": "string", "enum": ["b"]})
    async with client(make_service(runtime)) as c:
        page = await c.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "age" in page.text
        assert 'src="http' not in page.text
        assert "<script" not in page.text
        api = (await c.get("/openapi.json")).json()
        operation = api["paths"]["/predict"]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"] == schema
        assert (await c.get("/")).json()["docs"] == "/docs"


async def test_debug_config_shows_values_and_origins() -> None:
    service = make_service(ToyRuntime(), linger_s=1.5)
    service.origins["server.linger_s"] = "flag --linger-s"
    async with client(service) as c:
        told = (await c.get("/debug/config")).json()
        assert told["server"]["linger_s"] == {"value": 1.5, "origin": "flag --linger-s"}
        assert told["m"]["class"] == {"value": "light", "origin": "default"}
        assert (await c.get("/debug/state")).json()["models"]["m"]["rows_max"] == 64


async def test_asgi_limits_the_body_and_hears_the_client_leave() -> None:
    runtime = ToyRuntime()
    service = make_service(runtime, body_bytes_max=10)
    async with client(service) as c:
        large = await c.post("/predict", content=b"x" * 11)
        assert (large.status_code, large.json()["code"]) == (413, "too_large")

        async def parts() -> Any:
            for _ in range(4):
                yield b"xxxx"

        assert (await c.post("/predict", content=parts())).status_code == 413
        service.phase = "draining"
        assert (await c.post("/predict", content=b"1")).status_code == 503
    service.phase = "serving"
    runtime.hold = True
    told = [{"type": "http.request", "body": b"1"}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return told.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "headers": [],
        "query_string": b"",
    }
    await App(service)(scope, receive, send)
    assert runtime.cancelled == runtime.seen[-1:]
    told.append({"type": "http.disconnect"})
    await App(service)(scope, receive, send)
    assert sent == []
    assert service.in_flight == 0


async def test_asgi_streams() -> None:
    def stream(request: Request) -> ItemResult:
        request.reply.chunk(b"1")
        return ItemResult(200, b"")

    service = make_service(ToyRuntime(stream))
    async with client(service) as c:
        events = await c.post("/predict", content=b"1", headers={"accept": "text/event-stream"})
        assert events.text == "data: 1\n\ndata: [DONE]\n\n"
        assert events.headers["x-accel-buffering"] == "no"
        assert (await c.post("/predict", content=b"1")).content == b"1"


async def test_a_bug_in_a_document_is_500(monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service(ToyRuntime())
    monkeypatch.setattr(service.models["m"].view, "status", lambda: 1 / 0)
    async with client(service) as c:
        assert (await c.get("/readyz")).status_code == 500


async def test_an_embedding_call_is_cancelled_at_its_own_model_only() -> None:
    one, two = ToyRuntime(), ToyRuntime()
    two.info, two.hold = EMBED, True
    wire = Wire(make_service(one, two, names="mn"))
    wire.feed(post(b'{"input": ["a", "b"], "model": "n"}', "/v1/embeddings"))
    wire.lose()
    assert [len(r.cancelled) for r in (one, two)] == [0, 2]
