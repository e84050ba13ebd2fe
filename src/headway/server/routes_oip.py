"""The Open Inference Protocol's routes: metadata, infer, statistics.

Knows how one call becomes one request, or several where it has more rows than a batch holds; must
not know the shapes of bodies (`core.wire.oip`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from headway.core.errors import UserError
from headway.core.request import Codec, ItemResult, Request
from headway.core.wire import oip
from headway.core.wire.frame import Parts, Tensors, pack_tensors, unpack_tensors
from headway.core.wire.problem import Answer, error_of, json_answer
from headway.server.exchange import Exchange

if TYPE_CHECKING:
    from headway.core.ports import ModelInfo
    from headway.server.routes import Ask


class _Piece:
    """Hears the answer to some rows of a call."""

    __slots__ = ("_at", "_join")

    def __init__(self, join: _Join, at: int) -> None:
        self._join = join
        self._at = at

    def chunk(self, body: bytes) -> None:
        """Tensors do not stream over REST."""

    def done(self, result: ItemResult) -> None:
        """Some rows are answered."""
        self._join.piece(self._at, result)


class _Join:
    """Joins the answers to the pieces of one call again (B22)."""

    __slots__ = ("_call", "_ex", "_info", "_left", "_name", "_pieces")

    def __init__(
        self, ex: Exchange, call: oip.InferCall, name: str, info: ModelInfo, pieces: int
    ) -> None:
        self._ex = ex
        self._call = call
        self._name = name
        self._info = info
        self._pieces: list[Tensors | None] = [None] * pieces
        self._left = pieces

    def piece(self, at: int, result: ItemResult) -> None:
        """Piece `at` is answered. One that fails fails the call and frees the rest."""
        ex = self._ex
        if ex.finished:
            return
        if result.status != 200:
            ex.cancel()
            ex.fail(error_of(result))
            return
        try:
            self._pieces[at] = unpack_tensors(result.body)
        except msgspec.DecodeError:
            ex.cancel()
            ex.fail(
                UserError(
                    500,
                    "bad_result",
                    f"model {self._name!r} gave no tensors",
                    hint="return a dict of output name to array",
                )
            )
            return
        self._left -= 1
        if self._left == 0:
            reply = oip.join_rows([p for p in self._pieces if p is not None])
            ex.send(oip.infer_answer(self._call, reply, self._name, self._info.version))


def infer(ex: Exchange) -> None:
    """Serve `POST /v2/models/{m}/infer`."""
    served = ex.route.served
    assert served is not None
    service = ex.service
    view = served.view
    if view.info is None:
        service.check_started(served)
    info = view.info or service.empty_info
    length = ex.seen.get(b"inference-header-content-length")
    call = oip.parse_infer(ex.body, length.decode("latin-1") if length else None, info)
    rows_max = view.rows_max or call.rows
    if call.rows <= rows_max:
        pieces: list[tuple[int, Parts]] = [(call.rows, [p.packed() for p in call.parts])]
    else:
        pieces = oip.split_rows(call, rows_max)
    join = _Join(ex, call, served.name, info, len(pieces))
    requests: list[Request] = []
    for at, (rows, parts) in enumerate(pieces):
        payload = pack_tensors(parts, wanted=call.wanted, binary=call.binary)
        request = ex.request(payload, Codec.TENSORS, rows=rows, reply=_Piece(join, at))
        request.priority = request.priority or call.priority
        if call.timeout_s is not None:
            request.expires_s = request.arrival_s + call.timeout_s
        requests.append(request)
    ex.work = requests
    ex.runtime = served.runtime
    for request in requests:
        if ex.finished:  # an earlier piece was refused, and the call with it
            break
        service.submit(served, request)


def server_metadata(ask: Ask) -> Answer:
    """`GET /v2`."""
    return oip.server_metadata(ask.service.version)


def model_metadata(ask: Ask) -> Answer:
    """`GET /v2/models/{m}`."""
    served = ask.service.find(ask.params["model"], ask.params.get("version", ""))
    return oip.model_metadata(served.name, served.view.info)


def stats(ask: Ask) -> Answer:
    """`GET /v2/models[/{m}]/stats`, in Triton's shape."""
    service = ask.service
    service.pump()
    chosen = ask.models()
    if "model" in ask.params:
        chosen = [service.find(ask.params["model"], ask.params.get("version", ""))]
    offset_s = time.time() - service.now()
    shown = []
    for served in chosen:
        info = served.view.info
        shown.append(served.stats.shown(served.name, info.version if info else "", offset_s))
    return json_answer({"model_stats": shown})
