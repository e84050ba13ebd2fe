"""`make demo`: serve a real embedding model offline, load it, show what batching did.

Starts `headway serve examples/embed_onnx.py`, sends texts of mixed length first as 32 clients and
then as random arrivals, and prints what the load generator saw. KEEP=1 leaves the server running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADWAY = [sys.executable, "-m", "headway.cli.main"]
START_S = 60.0
PORT = os.environ.get("PORT", "8000")
DURATION_S = os.environ.get("DURATION", "8")
OBJECTIVE = "p99<200ms"


def ready(root: str, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the server answers `/readyz`, or has ended."""
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and server.poll() is None:
        try:
            with urllib.request.urlopen(root + "/readyz", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    return False


def load(url: str, title: str, *flags: str) -> int:
    """One load run, its table under a heading."""
    print(f"\n== {title}", flush=True)
    words = [*HEADWAY, "load", url, "--duration", DURATION_S, "--texts", "256", *flags]
    return subprocess.run(words, check=False).returncode


def main() -> int:
    """Run the demo; the exit code says whether every answer came."""
    root = f"http://localhost:{PORT}"
    url = f"{root}/v1/embeddings"
    model = str(HERE / "embed_onnx.py")
    words = [*HEADWAY, "serve", f"minilm={model}", "--port", PORT]
    server = subprocess.Popen(words, start_new_session=True)
    try:
        if not ready(root, server):
            print("the server did not start; its last lines above say why", file=sys.stderr)
            return 1
        code = load(url, "32 clients, texts of 5 to 200 words", "--concurrency", "32")
        code |= load(url, "20 texts a second at random times", "--rate", "20",
                     "--objective", OBJECTIVE)  # fmt: skip
        if os.environ.get("KEEP", "") not in {"", "0"}:
            print(f"\nStill serving at {root} (docs at {root}/docs). Ctrl-C ends it.", flush=True)
            signal.signal(signal.SIGTERM, lambda *_: server.terminate())
            try:
                server.wait()
            except KeyboardInterrupt:
                pass
        return code
    finally:
        end(server)


def end(server: subprocess.Popen[bytes]) -> None:
    """Ctrl-C for the server: it drains and leaves."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    killer = threading.Timer(10, server.kill)
    killer.start()
    server.wait()
    killer.cancel()


if __name__ == "__main__":
    sys.exit(main())
