"""The time limits of a connection: one look at each, once a second, instead of timers per request.

Knows stages and limits; must not know bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.server.limits import body_too_slow, headers_too_slow

if TYPE_CHECKING:
    from headway.server.connection import Connection

IDLE, HEAD, BODY, CLOSING = range(4)
"""Stages of a connection: between requests, in a head, in a body, read no more."""


def sweep(lane: Connection, now_s: float) -> None:
    """Enforce the time limits of this connection."""
    limits = lane.state.config
    waited_s = now_s - lane.since_s
    if lane.flow.write_paused:
        _sweep_unread(lane, now_s)
    elif lane.stage == BODY:
        _sweep_body(lane, now_s, waited_s)
    elif lane.stage == HEAD:
        if waited_s > limits.header_s_max:
            lane.refuse(headers_too_slow(limits.header_s_max))
    elif lane.line:
        return
    elif lane.stage == CLOSING:
        if waited_s > lane.state.close_linger_s:
            lane.transport.abort()
    elif waited_s > limits.keep_alive_s:
        lane.transport.close()


def _sweep_body(lane: Connection, now_s: float, waited_s: float) -> None:
    limits = lane.state.config
    taken_s = now_s - lane.body_since_s
    silent = waited_s > limits.body_gap_s_max
    rate = lane.body_bytes / max(taken_s, 1e-9)
    slow = taken_s > limits.body_gap_s_max and rate < limits.body_rate_bytes_s_min
    if not silent and not slow:
        return
    if lane.turn is None and (not lane.asgi_body or lane.cycle.response_complete):
        lane.drop()  # it is already answered
        return
    what = f"silent for longer than {limits.body_gap_s_max:g} s"
    setting = "body_gap_s_max"
    if not silent:
        what = f"slower than {limits.body_rate_bytes_s_min:g} bytes/s"
        setting = "body_rate_bytes_s_min"
    lane.refuse(body_too_slow(what, setting))


def _sweep_unread(lane: Connection, now_s: float) -> None:
    unsent = lane.transport.get_write_buffer_size()
    if unsent < lane.stuck_bytes:
        lane.stuck_bytes = unsent
        lane.since_s = now_s
    elif now_s - lane.since_s > lane.state.config.body_gap_s_max:
        lane.drop()
