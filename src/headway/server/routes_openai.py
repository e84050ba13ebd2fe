"""OpenAI's routes: `/v1/embeddings`, `/v1/models`.

Knows how one call becomes one request per input and is joined again in order; must not know the
shapes of bodies (`core.wire.openai`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.errors import UserError
from headway.core.request import Codec, ItemResult, Request
from headway.core.wire.openai import (
    EmbeddingsCall,
    embeddings_answer,
    model_entry,
    model_list,
    parse_embeddings,
    vector,
)
from headway.core.wire.problem import Answer, error_of, json_answer
from headway.server.exchange import Exchange

if TYPE_CHECKING:
    from headway.server.routes import Ask
    from headway.server.service import Served

_BYTES_PER_TOKEN = 4
"""Guess for `usage` where the model measures no tokens (about right for English)."""


class _Part:
    """Hears the answer of one input."""

    __slots__ = ("_at", "_join")

    def __init__(self, join: _Join, at: int) -> None:
        self._join = join
        self._at = at

    def chunk(self, body: bytes) -> None:
        """Embeddings do not stream; a model that does fails the call."""

    def done(self, result: ItemResult) -> None:
        """One input is answered."""
        self._join.part(self._at, result)


class _Join:
    """Collects the vectors of one call, in the order of its inputs (S10)."""

    __slots__ = ("_call", "_ex", "_left", "_parts", "_served", "requests")

    def __init__(self, ex: Exchange, served: Served, call: EmbeddingsCall) -> None:
        self._ex = ex
        self._served = served
        self._call = call
        self._parts: list[ItemResult | None] = [None] * len(call.payloads)
        self._left = len(call.payloads)
        self.requests: list[Request] = []

    def part(self, at: int, result: ItemResult) -> None:
        """Input `at` is answered. One that fails fails the call and frees the rest."""
        if self._ex.finished:
            return
        if result.status != 200:
            self._ex.cancel()
            self._ex.fail(error_of(result))
            return
        self._parts[at] = result
        self._left -= 1
        if self._left == 0:
            self._answer()

    def _answer(self) -> None:
        call, parts = self._call, [p for p in self._parts if p is not None]
        try:
            vectors = [
                vector(p.body, dimensions=call.dimensions, base64=call.base64) for p in parts
            ]
        except UserError as exc:
            self._ex.fail(exc)
            return
        answer = embeddings_answer(self._served.name, vectors, self._tokens(parts))
        self._ex.send_ok(answer.content_type, answer.body)

    def _tokens(self, parts: list[ItemResult]) -> int:
        info = self._served.view.info
        if info is not None and info.size_unit == "tokens":
            return round(sum(p.size for p in parts))
        if self._call.token_ids:
            return self._call.token_ids
        size = sum(len(p) for p in self._call.payloads) - len('{"text":""}') * len(parts)
        return max(len(parts), size // _BYTES_PER_TOKEN)


def embeddings(ex: Exchange) -> None:
    """Serve `POST /v1/embeddings`: one request per input."""
    call = parse_embeddings(ex.body)
    service = ex.service
    served = service.find(call.model) if call.model else service.only()
    info = served.view.info
    if info is not None and not info.embeds:
        raise UserError(
            400,
            "not_an_embedding_model",
            f"model {served.name!r} does not embed texts",
            hint="set embeds = True on the model, or use /predict",
            param="model",
        )
    join = _Join(ex, served, call)
    requests = join.requests
    for at, payload in enumerate(call.payloads):
        request = ex.request(payload, Codec.EMBED, reply=_Part(join, at))
        if call.priority and not request.priority:
            request.priority = call.priority
        requests.append(request)
    ex.work = requests
    ex.runtime = served.runtime
    for request in requests:
        if ex.finished:  # an earlier one was refused, and the call with it
            break
        service.submit(served, request)


def models(ask: Ask) -> Answer:
    """`GET /v1/models`."""
    return model_list(list(ask.service.models), ask.service.created_s)


def model(ask: Ask) -> Answer:
    """`GET /v1/models/{id}`."""
    served = ask.service.find(ask.params["model"])
    return json_answer(model_entry(served.name, ask.service.created_s))
