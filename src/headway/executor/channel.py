"""Frames between the pool and a worker, over a Unix stream socket.

Knows bytes and file descriptors; must not know models, batches or threads.

A frame is a 24-byte header (`HEAD`), then its payload. Bodies travel concatenated after a table of
their lengths. Bodies over `INLINE_MAX` bytes go into one memfd per frame, passed over the socket:
the kernel frees it with its last descriptor, so nothing can be left in shared memory.
"""

from __future__ import annotations

import os
import socket
import struct
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

HEAD = struct.Struct("<IBBHIIQ")
"""Payload bytes, kind, flags, reserved, number of bodies, a small number, an id."""

INLINE_MAX = 64 * 1024
"""Largest body sent inside the socket's stream, in bytes."""

_FAR = 1 << 31
_CHUNK = 64 * 1024
_CHUNK_MAX = 1 << 20
_ANC = socket.CMSG_SPACE(16 * 4)
_RECV_FLAGS = socket.MSG_CMSG_CLOEXEC

# From the pool.
CONFIG, RUN, CANCEL, MEASURE = 1, 2, 3, 4
# From the worker.
PHASE, READY, FAILED, DONE, CHUNK, ITEM_END, MEASURED = 10, 11, 12, 13, 14, 15, 16

EXTRA = 1
"""Flag: a MessagePack section lies between the length table and the bodies, its length first."""
FD = 2
"""Flag: a memfd came with this frame; lengths with the top bit set name bodies in it."""

U32 = struct.Struct("<I")


class Frame(NamedTuple):
    """One frame: `data[pos:end]` is its payload. `fd` is -1 or the reader's to close."""

    kind: int
    flags: int
    items: int
    number: int
    ident: int
    data: bytes
    pos: int
    end: int
    fd: int


class FrameReader:
    """Cuts what arrives on a socket into frames."""

    def __init__(self, sock: socket.socket) -> None:
        self._recvmsg = sock.recvmsg
        self.fileno = sock.fileno
        self._buf = bytearray()
        self._need = 0
        self._fds: deque[int] = deque()

    def read(self, flags: int = 0) -> list[Frame]:
        """One receive; the frames it completed. EOFError at the end, BlockingIOError if empty."""
        room = min(max(_CHUNK, self._need - len(self._buf)), _CHUNK_MAX)
        data, ancillary, _, _ = self._recvmsg(room, _ANC, _RECV_FLAGS | flags)
        if not data:
            raise EOFError
        if ancillary:
            self._take_fds(ancillary)
        if self._buf:
            self._buf += data
            if len(self._buf) < self._need:
                return []
            data = bytes(self._buf)
            self._buf.clear()
        return self._cut(data)

    def _cut(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        pos, size = 0, len(data)
        need = 0
        while pos < size:
            body = pos + HEAD.size
            if body > size:
                need = HEAD.size
                break
            length, kind, flags, _, count, number, ident = HEAD.unpack_from(data, pos)
            end = body + length
            if end > size:
                need = end - pos
                break
            fd = self._fds.popleft() if flags & FD else -1
            frames.append(Frame(kind, flags, count, number, ident, data, body, end, fd))
            pos = end
        if pos < size:
            self._buf += data[pos:]
            self._need = need
        return frames

    def _take_fds(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)

    def close(self) -> None:
        """Give back descriptors that came for frames never completed."""
        while self._fds:
            os.close(self._fds.popleft())


class Packed(NamedTuple):
    """A frame ready to send. `fd` is -1 or the sender's to close after sending."""

    data: bytes
    fd: int


def pack(
    kind: int,
    bodies: Sequence[bytes],
    *,
    ident: int = 0,
    number: int = 0,
    lead: bytes = b"",
    extra: bytes | None = None,
) -> Packed:
    """A frame of bodies: `lead` (fixed length by kind), length table, extra, bodies."""
    lengths: Iterable[int] = map(len, bodies)
    fd, flags, inline = -1, 0, bodies
    if bodies and max(lengths) > INLINE_MAX:
        lengths, inline, fd = _far_bodies(bodies)
        flags = FD
    else:
        lengths = map(len, bodies)
    parts = [lead, array("I", lengths).tobytes()]
    if extra is not None:
        flags |= EXTRA
        parts.append(U32.pack(len(extra)))
        parts.append(extra)
    parts.extend(inline)
    payload = b"".join(parts)
    head = HEAD.pack(len(payload), kind, flags, 0, len(bodies), number, ident)
    return Packed(head + payload, fd)


def _far_bodies(bodies: Sequence[bytes]) -> tuple[list[int], list[bytes], int]:
    lengths: list[int] = []
    inline: list[bytes] = []
    fd = os.memfd_create("headway", os.MFD_CLOEXEC)
    for body in bodies:
        if len(body) <= INLINE_MAX:
            lengths.append(len(body))
            inline.append(body)
            continue
        assert len(body) < _FAR, "a body of 2 GiB or more cannot be framed"
        lengths.append(len(body) | _FAR)
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
    return lengths, inline, fd


class Bodies(NamedTuple):
    """What `pack` was given, read back."""

    bodies: list[bytes]
    extra: memoryview | None


def unpack(frame: Frame, lead: int = 0) -> Bodies:
    """Read a frame of bodies; closes its memfd."""
    data, count = frame.data, frame.items
    pos = frame.pos + lead
    lengths = array("I")
    end = pos + 4 * count
    lengths.frombytes(data[pos:end])
    extra: memoryview | None = None
    if frame.flags & EXTRA:
        (length,) = U32.unpack_from(data, end)
        end += 4 + length
        extra = memoryview(data)[end - length : end]
    if frame.fd >= 0:
        return Bodies(_read_far(frame, lengths, end), extra)
    ends = list(accumulate(lengths, initial=end))
    return Bodies([data[a:b] for a, b in pairwise(ends)], extra)


def _read_far(frame: Frame, lengths: array[int], pos: int) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    try:
        for n in lengths:
            if n & _FAR:
                size = n - _FAR
                bodies.append(_pread_all(frame.fd, size, offset))
                offset += size
            else:
                bodies.append(frame.data[pos : pos + n])
                pos += n
    finally:
        os.close(frame.fd)
    return bodies


def _pread_all(fd: int, size: int, offset: int) -> bytes:
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise EOFError
        data += more
    return data


def message(kind: int, body: bytes = b"", *, ident: int = 0, number: int = 0) -> Packed:
    """A frame whose payload is one piece of bytes (small, or a stream's chunk)."""
    return Packed(HEAD.pack(len(body), kind, 0, 0, 0, number, ident) + body, -1)


def rights(fd: int) -> list[tuple[int, int, bytes]]:
    """Ancillary data that passes one descriptor."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]).tobytes())]


def send_blocking(sock: socket.socket, packed: Packed) -> None:
    """Send all of a frame, waiting while the socket is full; closes its memfd."""
    if packed.fd < 0:
        sock.sendall(packed.data)
        return
    try:
        sent = sock.sendmsg([packed.data], rights(packed.fd))
    finally:
        os.close(packed.fd)
    if sent < len(packed.data):
        sock.sendall(memoryview(packed.data)[sent:])
