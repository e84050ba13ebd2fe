"""Models that workers load in tests, by path."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

import headway


class Seen(headway.Model):
    """Answers with how many it was given, and remembers every item ever seen."""

    def load(self) -> None:
        self.seen: list[Any] = []

    def predict(self, batch: list[Any]) -> list[Any]:
        if batch == ["seen"]:
            return [self.seen]
        self.seen += batch
        for item in batch:
            if isinstance(item, dict) and "sleep" in item:
                time.sleep(item["sleep"])
        return [len(batch)] * len(batch)


class SeenAhead(Seen):
    """The same with a `decode` of its own, so that a thread reads ahead."""

    def decode(self, body: bytes, content_type: str) -> Any:
        item = super().decode(body, content_type)
        if item == "bad":
            raise headway.ItemError(418, "a teapot")
        return item

    def encode(self, result: Any) -> Any:
        return msgspec.json.encode(result), "application/x-ours"


class DecodesPart(headway.Model):
    def decode(self, body: bytes, content_type: str) -> Any:
        return msgspec.json.decode(body.partition(b": ")[2])

    def predict(self, batch: list[Any]) -> list[Any]:
        return batch


class Point(msgspec.Struct):
    x: int
    label: str = ""


class Typed(headway.Model):
    def predict(self, batch: list[Point]) -> list[Point]:
        return [Point(p.x + 1, p.label) for p in batch]


def predict(batch: list[Any]) -> list[Any]:
    return [{"double": 2 * item} for item in batch]


class Streams(headway.Model):
    """Per-item generators: item n gives n pieces; `"closed"` asks which closed, and when."""

    def load(self) -> None:
        self.closed: list[list[int]] = []

    def predict(self, batch: list[Any]) -> list[Any]:
        if batch == ["closed"]:
            return [self.closed]
        return [self.count(n) for n in batch]

    def count(self, n: int) -> Iterator[Any]:
        step = 0
        try:
            while step < n:
                yield step
                step += 1
        except GeneratorExit:
            self.closed.append([n, step])
            raise


class Steps(headway.Model):
    """One generator for the batch, told who left; `"told"` asks what it heard."""

    def load(self) -> None:
        self.told: list[Any] = []

    def predict(self, batch: list[Any]) -> Iterator[list[Any]]:
        if batch == ["told"]:
            yield [self.told]
            return
        step = 0
        try:
            while step < max(batch):
                gone = yield [step if step < n else headway.END for n in batch]
                if gone:
                    self.told.append(gone)
                step += 1
        except GeneratorExit:
            self.told.append("closed")
            raise


class StreamsAhead(Streams):
    """The same, decoded by a thread that reads ahead; item 0 keeps the worker busy a moment."""

    def decode(self, body: bytes, content_type: str) -> Any:
        return super().decode(body, content_type)

    def predict(self, batch: list[Any]) -> list[Any]:
        if batch == [0]:
            time.sleep(0.1)
        return super().predict(batch)


class AwaitsSteps(headway.Model):
    """One asynchronous generator for the batch."""

    async def predict(self, batch: list[int]) -> AsyncIterator[list[Any]]:
        for step in range(max(batch)):
            yield [step if step < n else headway.END for n in batch]
            await asyncio.sleep(0)


class Awaits(headway.Model):
    async def load(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.closed: list[list[int]] = []

    async def predict(self, batch: list[Any]) -> list[Any]:
        await asyncio.sleep(0.001)
        if batch == ["closed"]:
            return [self.closed]
        return [self.count(i["n"]) if isinstance(i, dict) else i for i in batch]

    async def count(self, n: int) -> AsyncIterator[int]:
        step = 0
        try:
            while step < n:
                yield step
                await asyncio.sleep(0.001)
                step += 1
        finally:
            if step < n:
                self.closed.append([n, step])


class Stuck(headway.Model):
    """Never returns when asked not to."""

    def predict(self, batch: list[Any]) -> list[Any]:
        while "stuck" in batch:
            time.sleep(60)
        return batch


class BadLoad(headway.Model):
    def load(self) -> None:
        raise RuntimeError("weights are missing")

    def predict(self, batch: list[Any]) -> list[Any]:
        return batch


class Words(headway.Model):
    """Measures its items, and counts how often it had to decode."""

    form = "padded"
    size_unit = "words"
    padded_sizes = (2, 4)

    def load(self) -> None:
        self.decoded = 0
        self.lengths: list[int] = []

    def decode(self, body: bytes, content_type: str) -> Any:
        self.decoded += 1
        return body.decode().split()

    def measure(self, item: list[str]) -> float:
        return len(item)

    def predict(self, batch: list[list[str]]) -> list[Any]:
        self.lengths.append(len(batch))
        return [{"decoded": self.decoded, "batches": self.lengths} for _ in batch]


class Embeds(headway.Model):
    embeds = True

    def predict(self, batch: list[Any]) -> list[Any]:
        return [[float(len(item["text"])), 0.5] for item in batch]


class Tensors(headway.Model):
    inputs = (headway.Tensor("a", "FP32", (-1, 2)),)
    outputs = (headway.Tensor("sum", "FP32", (-1, 1)),)

    def predict(self, batch: list[Any]) -> list[Any]:
        return [{"sum": [row["a"].sum()]} for row in batch]


class TensorsAnyLength(Tensors):
    inputs = (headway.Tensor("a", "FP32", (-1, -1)),)


class Warm(headway.Model):
    max_batch_size = 8

    def predict(self, batch: list[str]) -> list[int]:
        return [len(text) for text in batch]

    def warmup(self) -> list[str]:
        return ["a" * 10, "b" * 300, "c" * 40]


class Compiles(Warm):
    """Says whether a batch size was run before, as a compiler or a graph cache would know."""

    def load(self) -> None:
        self.sizes: set[int] = set()

    def predict(self, batch: list[str]) -> list[Any]:
        known = len(batch) in self.sizes
        self.sizes.add(len(batch))
        return ["warm" if known else "cold"] * len(batch)


class Forks(headway.Model):
    """Leaves two processes behind that never end by themselves."""

    def load(self) -> None:
        self.children: list[int] = []
        for _ in range(2):
            self.children.append(os.fork())
            while self.children[-1] == 0:
                time.sleep(60)

    def predict(self, batch: list[Any]) -> list[Any]:
        return [self.children] * len(batch)
