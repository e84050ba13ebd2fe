"""A BERT-family sentence encoder that runs packed batches: attention per item, no padding.

Knows the network and its checkpoint names; must not know requests, batches or tokenizers. Reads
`config.json`, `model.safetensors` and, where present, `1_Pooling/config.json` of a directory in
the sentence-transformers layout.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's own customary name
from numpy.typing import NDArray

from headway.executor.nets.attention import attend
from headway.executor.nets.checkpoint import read_safetensors
from headway.executor.nets.linear import Linear
from headway.executor.nets.packed import Packed, pack

_ACTIVATIONS = ("gelu",)
_TYPES = ("bert",)


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes of one network."""

    layers: int
    hidden: int
    heads: int
    eps: float
    positions_max: int
    vocabulary: int
    pooling: str = "mean"
    """`mean` of the tokens of an item, or its first one (`cls`)."""

    @classmethod
    def read(cls, directory: Path) -> BertConfig:
        """From `config.json` in the transformers layout. Raises ValueError for another family."""
        raw = json.loads((directory / "config.json").read_text())
        kind, act = raw.get("model_type"), raw.get("hidden_act", "gelu")
        if kind not in _TYPES or act not in _ACTIVATIONS:
            raise ValueError(
                f"{directory} holds a {kind} network with {act}; this encoder runs "
                f"{', '.join(_TYPES)} with {', '.join(_ACTIVATIONS)}"
            )
        pooling = "mean"
        extra = directory / "1_Pooling" / "config.json"
        if extra.exists() and json.loads(extra.read_text()).get("pooling_mode_cls_token"):
            pooling = "cls"
        return cls(
            layers=raw["num_hidden_layers"],
            hidden=raw["hidden_size"],
            heads=raw["num_attention_heads"],
            eps=raw.get("layer_norm_eps", 1e-12),
            positions_max=raw["max_position_embeddings"],
            vocabulary=raw["vocab_size"],
            pooling=pooling,
        )


class _Norm:
    __slots__ = ("_bias", "_eps", "_weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
        self._weight, self._bias, self._eps = weight, bias, eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)


@dataclass(slots=True)
class _Layer:
    qkv: Linear
    attended: Linear
    norm1: _Norm
    up: Linear
    down: Linear
    norm2: _Norm


class _Weights:
    """Checkpoint tensors by name, cast, with or without the `bert.` prefix."""

    def __init__(self, tensors: dict[str, torch.Tensor], dtype: torch.dtype, eps: float) -> None:
        self._tensors = tensors
        self._dtype = dtype
        self._eps = eps
        self._prefix = "bert." if any(name.startswith("bert.") for name in tensors) else ""

    def raw(self, name: str) -> torch.Tensor:
        try:
            return self._tensors[self._prefix + name]
        except KeyError:
            raise ValueError(f"the checkpoint has no tensor {self._prefix + name}") from None

    def linear(self, *names: str) -> Linear:
        """One layer, or several side by side in one."""
        weight = torch.cat([self.raw(n + ".weight").to(self._dtype) for n in names])
        bias = torch.cat([self.raw(n + ".bias").to(self._dtype) for n in names])
        return Linear(weight, bias)

    def norm(self, name: str) -> _Norm:
        weight, bias = (self.raw(f"{name}.{part}").to(self._dtype) for part in ("weight", "bias"))
        return _Norm(weight, bias, self._eps)


class BertEncoder:
    """Token ids in, one L2-normalised float32 vector per item out. Not thread-safe, no state."""

    def __init__(
        self,
        config: BertConfig,
        tensors: dict[str, torch.Tensor],
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.config = config
        w = _Weights(tensors, dtype, config.eps)
        self._words = w.raw("embeddings.word_embeddings.weight").to(dtype)
        # Every token has type 0 here, so its vector is part of each position's.
        positions = w.raw("embeddings.position_embeddings.weight").float()
        types = w.raw("embeddings.token_type_embeddings.weight").float()
        self._positions = (positions + types[0]).to(dtype)
        self._norm = w.norm("embeddings.LayerNorm")
        self._layers = [_layer(w, i) for i in range(config.layers)]

    @classmethod
    def load(cls, directory: str | Path, dtype: str = "bfloat16") -> BertEncoder:
        """From a directory; `dtype` is `bfloat16` or `float32`."""
        kinds = {"bfloat16": torch.bfloat16, "float32": torch.float32}
        if dtype not in kinds:
            raise ValueError(f"dtype is {dtype!r}; one of {', '.join(kinds)}")
        where = Path(directory)
        tensors = read_safetensors(where / "model.safetensors")
        return cls(BertConfig.read(where), tensors, kinds[dtype])

    def embed(self, items: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors of items of token ids, [items, hidden], in the order given."""
        return self.embed_packed(pack(items))

    def embed_packed(self, batch: Packed) -> NDArray[np.float32]:
        """The same for a batch already packed.

        Items run in order of length, so that equal lengths share one attention call. Raises
        ValueError for an item that is empty, too long, or holds a token id outside the vocabulary.
        """
        self._check(batch)
        if not len(batch):
            return np.empty((0, self.config.hidden), np.float32)
        order = np.argsort(batch.lengths, kind="stable")
        sorted_ = _reorder(batch, order)
        with torch.inference_mode():
            x = self._embeddings(sorted_.token_ids, sorted_.positions)
            lengths = sorted_.lengths.tolist()
            for layer in self._layers:
                x = _block(layer, x, self._attend(layer.qkv(x), lengths))
            vectors = self._pool(x, sorted_)
            out = np.empty(vectors.shape, np.float32)
            out[order] = vectors.numpy()
        return out

    def embed_padded(
        self, token_ids: NDArray[np.int64], mask: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The same network over a padded rectangle and its mask (`executor.padding.pad`)."""
        rows, length = token_ids.shape
        if length > self.config.positions_max:
            raise ValueError(f"length {length} is over {self.config.positions_max} positions")
        positions = np.tile(np.arange(length), rows)
        with torch.inference_mode():
            allowed = torch.from_numpy(mask).bool()
            x = self._embeddings(np.ascontiguousarray(token_ids).reshape(-1), positions)
            for layer in self._layers:
                q, k, v = self._heads(layer.qkv(x), rows, length)
                o = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None, None, :])
                x = _block(layer, x, o.transpose(1, 2).reshape(rows * length, -1))
            x = x.float().view(rows, length, -1)
            if self.config.pooling == "cls":
                pooled = x[:, 0]
            else:
                weights = allowed.float()[..., None]
                pooled = (x * weights).sum(1) / weights.sum(1)
            return np.asarray(F.normalize(pooled, dim=1).numpy())

    def _check(self, batch: Packed) -> None:
        lengths, ids = batch.lengths, batch.token_ids
        if len(lengths) and int(lengths.min()) < 1:
            raise ValueError(f"item {int(lengths.argmin())} has no tokens")
        if len(lengths) and int(lengths.max()) > self.config.positions_max:
            raise ValueError(
                f"item {int(lengths.argmax())} has {int(lengths.max())} tokens, over the "
                f"network's {self.config.positions_max} positions"
            )
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.config.vocabulary:
            raise ValueError(f"token ids must be from 0 to {self.config.vocabulary - 1}")

    def _embeddings(
        self, token_ids: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> torch.Tensor:
        words = F.embedding(torch.from_numpy(token_ids), self._words)
        return self._norm(words.add_(F.embedding(torch.from_numpy(positions), self._positions)))

    def _heads(self, qkv: torch.Tensor, items: int, length: int) -> torch.Tensor:
        """[items * length, 3 * hidden] seen as [3, items, heads, length, size of a head]."""
        heads = self.config.heads
        return qkv.view(items, length, 3, heads, -1).permute(2, 0, 3, 1, 4)

    def _attend(self, qkv: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """Attention inside each item. Items of one length lie together and share a call."""
        out = qkv.new_empty(len(qkv), self.config.hidden)
        for start, items, length in _runs(lengths):
            stop = start + items * length
            o = attend(self._heads(qkv[start:stop], items, length))
            out[start:stop] = o.transpose(1, 2).reshape(stop - start, -1)
        return out

    def _pool(self, x: torch.Tensor, batch: Packed) -> torch.Tensor:
        offsets = torch.from_numpy(batch.offsets)
        if self.config.pooling == "cls":
            return F.normalize(x[offsets[:-1]].float(), dim=1)
        means = torch.segment_reduce(x.float(), "mean", offsets=offsets, axis=0)
        return F.normalize(means, dim=1)


def _layer(w: _Weights, i: int) -> _Layer:
    at = f"encoder.layer.{i}."
    return _Layer(
        qkv=w.linear(*(f"{at}attention.self.{part}" for part in ("query", "key", "value"))),
        attended=w.linear(at + "attention.output.dense"),
        norm1=w.norm(at + "attention.output.LayerNorm"),
        up=w.linear(at + "intermediate.dense"),
        down=w.linear(at + "output.dense"),
        norm2=w.norm(at + "output.LayerNorm"),
    )


def _block(layer: _Layer, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    x = layer.norm1(layer.attended(attended).add_(x))
    return layer.norm2(layer.down(layer.up.gelu(x)).add_(x))


def _reorder(batch: Packed, order: NDArray[np.intp]) -> Packed:
    lengths = batch.lengths[order]
    offsets = np.zeros(len(batch) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    where = np.repeat(batch.offsets[:-1][order] - offsets[:-1], lengths)
    return Packed(batch.token_ids[np.arange(len(where)) + where], offsets)


def _runs(lengths: list[int]) -> Iterator[tuple[int, int, int]]:
    """(first token, items, length) of each run of equal lengths."""
    start = 0
    for length, members in groupby(lengths):
        items = sum(1 for _ in members)
        yield start, items, length
        start += items * length
