"""Measure ``voxcast audit`` on a generated export: time, memory, and whether it tells the truth.

``python benchmarks/audit.py [LINES]``; a million lines by default. The command runs in a
process of its own, whose CPU time counts beside its wall time, since the machine may be shared.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accounting
from voxcast.history.imports import sacct

if TYPE_CHECKING:
    from collections.abc import Sequence

LINES = 1_000_000
LINES_READ_ONE_BY_ONE = 30_000
BOUND_S, BOUND_BYTES = 30.0, 1.5e9


def measured(arguments: Sequence[str], output: Path) -> dict[str, float]:
    """Run a verb and return its wall time, CPU time and peak memory."""
    start = time.perf_counter()
    voxcast = str(Path(sys.executable).with_name("voxcast"))
    with output.open("w") as stream:
        actions = [(os.POSIX_SPAWN_DUP2, stream.fileno(), 1)]
        pid = os.posix_spawn(voxcast, [voxcast, *arguments], os.environ, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"voxcast {' '.join(arguments)} failed")
    return {
        "wall_s": time.perf_counter() - start,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def main(arguments: Sequence[str]) -> int:
    """Print the figures; 1 if a bound is missed or a sum is wrong."""
    n_lines = int(arguments[0]) if arguments else LINES
    truth = accounting.truth(n_lines // accounting.LINES_PER_JOB)
    with tempfile.TemporaryDirectory() as folder:
        export, short = Path(folder) / "jobs.txt", Path(folder) / "short.txt"
        lines = list(accounting.lines(truth))
        export.write_text("\n".join(lines) + "\n")
        short.write_text("\n".join(lines[:LINES_READ_ONE_BY_ONE]) + "\n")
        output = Path(folder) / "audit.json"
        figures: dict[str, Any] = {"lines": len(lines), "file_bytes": export.stat().st_size}
        del lines
        picture = str(Path(folder) / "jobs.svg")
        figures |= measured(["audit", str(export), "--json", "--picture", picture], output)
        result = json.loads(output.read_text())
        start = time.process_time()
        sacct.read(short)
        n_short = min(LINES_READ_ONE_BY_ONE, figures["lines"])
        figures["line_reader_cpu_s_per_million"] = (time.process_time() - start) / n_short * 1e6
    ran = truth[truth["outcome"] != "never"]
    core_hours = float((ran["cpus"] * ran["runtime_s"]).sum() / 3600)
    figures["core_hours_off"] = result["total"]["core_hours"] / core_hours - 1
    figures["ended_as_generated"] = (
        result["total"]["ended"] == ran["outcome"].value_counts().to_dict()
    )
    figures |= {"bound_s": BOUND_S, "bound_bytes": BOUND_BYTES}
    print(json.dumps(figures, indent=2))
    right = abs(figures["core_hours_off"]) < 1e-9 and figures["ended_as_generated"]
    fits = figures["wall_s"] <= BOUND_S and figures["peak_bytes"] <= BOUND_BYTES
    return 0 if right and fits else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
