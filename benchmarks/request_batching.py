"""Request-level batching: every row of the speed table, peers and Headway side by side.

    make bench NAME=request_batching                the table
    JSON=1 make bench NAME=request_batching         one JSON object a line
    PEERS=all ...                                   LitServe, BentoML, Ray Serve and Triton too
    ROWS=noop-1,idle ...                            some rows (--list names them)

mosec is measured with batching on and, as mosec-off, with batching off.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.bench import Bench
from benchmarks.harness.catalog import PRODUCTS
from benchmarks.harness.rows import Row, as_json, table
from benchmarks.rows import embed, neighbours, noop, objective, overload, own_cost

ROWS: dict[str, Callable[[Bench], list[Row]]] = {
    "noop-1": noop.one_connection,
    "noop-32": noop.many_connections,
    "noop5-64": noop.full_batches,
    "noop5-partly": noop.partly_filled,
    "overload-noop5": overload.with_5_ms,
    "overload-noop": overload.without_work,
    "embed": embed.default_settings,
    "objective": objective.promise,
    "packed": embed.packed,
    "neighbours": neighbours.shared_device,
    "decide": own_cost.deciding,
    "idle": own_cost.resting,
    "spent": own_cost.spending,
}


def arguments() -> argparse.Namespace:
    """Flags; the environment variables of the make line are their defaults."""
    environ = os.environ
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    p.add_argument("--rows", default=environ.get("ROWS", ""), help="names, separated by commas")
    p.add_argument("--peers", default=environ.get("PEERS", ""), choices=("", "all"))
    p.add_argument("--rounds", type=int, default=int(environ.get("ROUNDS", "3")))
    p.add_argument(
        "--scale", type=float, default=1.0, help="below 1: a trial, numbers mean nothing"
    )
    p.add_argument("--subject", default="headway", choices=sorted(PRODUCTS))
    p.add_argument("--json", action="store_true", default=environ.get("JSON", "") not in ("", "0"))
    p.add_argument("--list", action="store_true", help="name the rows and exit")
    return p.parse_args()


def chosen(names: str) -> list[str]:
    """Rows asked for, in the table's order. Raises SystemExit for a name there is not."""
    wanted = [n.strip() for n in names.split(",") if n.strip()]
    if unknown := [n for n in wanted if n not in ROWS]:
        raise SystemExit(f"no row is named {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return [n for n in ROWS if not wanted or n in wanted]


def command_of(row: str) -> str:
    """The line that measures one row again."""
    return f"make bench NAME=request_batching ROWS={row}"


def main() -> int:
    """Measure, print, and say by the exit status whether every bar was met."""
    args = arguments()
    if args.list:
        print("\n".join(f"{n:16s}{(f.__doc__ or '').splitlines()[0]}" for n, f in ROWS.items()))
        return 0
    bench = Bench(args.rounds, args.scale, args.peers == "all", args.subject)
    bench.say(f"logs in {bench.folder}")
    rows: list[Row] = []
    broken = False
    begun = time.monotonic()
    for name in chosen(args.rows):
        bench.say(f"[{time.monotonic() - begun:4.0f} s] {name}")
        try:
            found = ROWS[name](bench)
        except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as e:
            # One server that does not start must not hide the other rows.
            broken = True
            bench.say(f"{name} could not be measured: {e}")
            continue
        rows += found
        if args.json:
            print("\n".join(as_json(r, command_of(name)) for r in found), flush=True)
    if not args.json:
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
        print(table(rows))
    return int(broken or any(r.ok is False for r in rows))


if __name__ == "__main__":
    sys.exit(main())
