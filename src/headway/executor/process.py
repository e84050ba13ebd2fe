"""One worker process as the pool holds it: its socket, its heartbeat, its end.

Knows Unix; must not know what frames mean or why a process is started or ended.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from headway.executor.channel import Frame, FrameReader, Packed, rights

_ROOT = str(Path(__file__).resolve().parents[2])
"""Where the `headway` package lies."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_REAP_S = 0.05
"""How long after its socket closed a process may take to end before it is killed."""


class Process:
    """A started worker. All calls on the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        beat_fd = os.memfd_create("headway-beat", os.MFD_CLOEXEC)
        os.ftruncate(beat_fd, mmap.PAGESIZE)
        self._beat = mmap.mmap(beat_fd, mmap.PAGESIZE)
        try:
            self._child = _popen(theirs.fileno(), beat_fd, threads)
        finally:
            theirs.close()
            os.close(beat_fd)
        self.pid = self._child.pid
        self._sock = ours
        self._fd = ours.fileno()
        self._send = ours.send
        ours.setblocking(False)
        self._reader = FrameReader(ours)
        self._waiting: deque[tuple[memoryview, int]] = deque()
        """What the socket did not take yet, with the descriptors to pass."""
        self._open = True
        self._listening = False
        self._hearing = False
        self._pidfd = -1
        self._on_frames: Callable[[list[Frame]], None]
        self._on_gone: Callable[[], None]

    def watch(self, on_frames: Callable[[list[Frame]], None], on_gone: Callable[[], None]) -> None:
        """Hear what the worker says, and once, after its last word, that it is gone."""
        self._on_frames = on_frames
        self._on_gone = on_gone
        self._loop.add_reader(self._fd, self._readable)
        self._listening = True
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            return  # an old kernel: the end of the socket tells as well
        self._loop.add_reader(self._pidfd, self._exited)

    def beats(self) -> int:
        """The worker's heartbeat count."""
        return int.from_bytes(self._beat[:8], "little")

    # -- sending ----------------------------------------------------------------------------

    def send(self, packed: Packed) -> None:
        """Send a frame now, or as soon as the socket takes it."""
        data, fd = packed
        if not self._open:
            if fd >= 0:
                os.close(fd)
            return
        if self._waiting or fd >= 0:
            self._waiting.append((memoryview(data), fd))
            if len(self._waiting) == 1:
                self._flush()
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it is ending: its loss is reported from the reading side
        if sent < len(data):
            self._waiting.append((memoryview(data)[sent:], -1))
            self._loop.add_writer(self._fd, self._flush)

    def _flush(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                data, fd = waiting[0]
                if fd >= 0:
                    sent = self._sock.sendmsg([data], rights(fd))
                    os.close(fd)
                else:
                    sent = self._send(data)
                if sent < len(data):
                    waiting[0] = (data[sent:], -1)
                else:
                    waiting.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._flush)
            return
        except OSError:
            self._drop_waiting()
        self._loop.remove_writer(self._fd)

    def _drop_waiting(self) -> None:
        while self._waiting:
            _, fd = self._waiting.popleft()
            if fd >= 0:
                os.close(fd)

    # -- hearing ----------------------------------------------------------------------------

    def hear(self) -> None:
        """Pass on what the worker has said so far, without waiting for the event loop."""
        if self._listening and not self._hearing:
            self._readable()

    def _readable(self) -> None:
        try:
            frames = self._reader.read()
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self._deaf()
            # The exit follows the socket's end within a moment; a process that stays is stuck.
            self._loop.call_later(_REAP_S, self._overdue)
            return
        # An answer can bring a new request at once, and that one may ask to hear more: not before
        # the frames of this read have been passed on.
        self._hearing = True
        try:
            self._on_frames(frames)
        finally:
            self._hearing = False

    def _exited(self) -> None:
        """The process ended: hear its last words, then report."""
        if self._child.poll() is None:
            return
        while self._listening:
            try:
                frames = self._reader.read()
            except (BlockingIOError, EOFError, OSError):
                break
            if frames:
                self._on_frames(frames)
        self._release()
        self._on_gone()

    def _overdue(self) -> None:
        if self._child.returncode is not None:
            return
        if self._child.poll() is None:
            self.kill()
            self._loop.call_later(_REAP_S, self._overdue)
            return
        self._exited()

    def mute(self) -> None:
        """Hear nothing more from it: what it says is no longer wanted."""
        self._deaf()
        self._open = False
        self._watch_otherwise()

    def hang_up(self) -> None:
        """Close the connection: an idle worker ends by itself."""
        self._deaf()
        self._release_socket()
        self._watch_otherwise()

    def _watch_otherwise(self) -> None:
        if self._pidfd < 0:
            self._loop.call_later(10 * _REAP_S, self._overdue)

    def _deaf(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._fd)

    # -- ending -----------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the worker and what it started. A no-op once it is gone."""
        if self._child.returncode is None and self._child.poll() is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self._child.kill()

    def ending(self) -> str:
        """How it ended, for people."""
        status = self._child.returncode
        if status is None:
            return "closed its connection"
        if status >= 0:
            return f"exited with status {status}"
        name = signal.Signals(-status).name
        return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

    def _release(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self._deaf()
        self._release_socket()
        self._beat.close()
        try:
            # Whatever the worker itself had started goes with it.
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _release_socket(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._open = False
        self._loop.remove_writer(self._fd)
        self._drop_waiting()
        self._reader.close()
        self._sock.close()


def _popen(fd: int, beat_fd: int, threads: int) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    paths = [_ROOT, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    for name in _THREAD_VARIABLES:
        environment.setdefault(name, str(threads))
    words = [sys.executable, "-P", "-m", "headway.executor.worker"]
    return subprocess.Popen(
        [*words, str(fd), str(beat_fd), str(os.getpid())],
        pass_fds=(fd, beat_fd),
        stdin=subprocess.DEVNULL,
        stdout=2,
        env=environment,
        # A group of its own: Ctrl-C in the terminal reaches the parent alone.
        process_group=0,
    )
