"""Frames survive any cutting of the stream, and big bodies travel beside it."""

from __future__ import annotations

import os
import random
import socket

import pytest

from headway.executor import channel
from headway.executor.channel import FrameReader


def read_all(reader: FrameReader, count: int) -> list[channel.Frame]:
    frames: list[channel.Frame] = []
    while len(frames) < count:
        frames += reader.read()
    return frames


@pytest.mark.parametrize("seed", range(5))
def test_frames_cut_anywhere_come_out_whole(seed: int) -> None:
    rng = random.Random(seed)
    sent = [
        [rng.randbytes(rng.choice((0, 1, 30, 500))) for _ in range(rng.randrange(0, 40))]
        for _ in range(30)
    ]
    stream = b"".join(
        channel.pack(channel.RUN, bodies, ident=n, number=n % 3, extra=b"e" * (n % 2) or None).data
        for n, bodies in enumerate(sent)
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(theirs)
        frames: list[channel.Frame] = []
        while stream:
            n = rng.randrange(1, 4000)
            ours.sendall(stream[:n])
            stream = stream[n:]
            frames += reader.read()
        got = [channel.unpack(frame) for frame in frames]
        assert [read.bodies for read in got] == sent
        assert [(f.ident, f.number) for f in frames] == [(n, n % 3) for n in range(30)]
        assert bytes(got[1].extra or b"") == b"e" and got[2].extra is None
        ours.close()
        with pytest.raises(EOFError):
            reader.read()


def test_big_bodies_come_by_memfd_and_in_order() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    bodies = [b"small", b"x" * 3_000_000, b"", b"y" * (channel.INLINE_MAX + 1), b"end"]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(theirs)
        packed = channel.pack(channel.RUN, bodies)
        assert len(packed.data) < 1000
        channel.send_blocking(ours, packed)
        channel.send_blocking(ours, channel.pack(channel.RUN, [b"next"]))
        first, second = read_all(reader, 2)
        read = channel.unpack(first)
        assert read.bodies == bodies
        assert channel.unpack(second).bodies == [b"next"]
        # What came for a frame that was cut off is given back as well.
        packed = channel.pack(channel.RUN, bodies)
        ours.sendmsg([packed.data[:40]], channel.rights(packed.fd))
        os.close(packed.fd)
        assert reader.read() == []
        reader.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
