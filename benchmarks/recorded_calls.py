"""What recording adds to a call of mpi4py; prints JSON."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from timing import machine

ROUNDS = 9
CALLS = 20_000
CALLS_PER_S = 10_000
BOUND_OVERHEAD = 0.02  # at so many calls
# Calls recorded and plain in turn, in one process, by CPU time, which other processes disturb
# little. Once call after call, where the mean of the rounds' differences counts, as events are
# written in few of the rounds; and once with work between them, for 10,000 calls a second, so that
# the caches hold the program's data.
RECORDED = """
import json, sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
sys.path.insert(0, str(Path(sys.argv[1]).parent))
plain = MPI.COMM_WORLD
import recorder
recorder.start_recording(Path(sys.argv[2]))
traced = MPI.COMM_WORLD
x, y, data = np.zeros(100), np.zeros(100), np.random.default_rng(1).random((400, 64))
def step_s(communicator, repeats, steps=int(sys.argv[3])):
    start = time.thread_time()
    for _ in range(steps):
        for _ in range(repeats):
            data.sum(axis=1)
        communicator.Allreduce(x, y)
    return (time.thread_time() - start) / steps
steps_per_s, n_rounds = float(sys.argv[5]), int(sys.argv[4])
alone_s = step_s(plain, 0)
repeats = round((1 / steps_per_s - alone_s) / ((step_s(plain, 20) - alone_s) / 20))
print(json.dumps({
    "calls": [(step_s(plain, 0), step_s(traced, 0)) for _ in range(n_rounds)],
    "steps": [(step_s(plain, repeats), step_s(traced, repeats)) for _ in range(n_rounds)],
}))
"""


def recording(folder: Path) -> dict[str, Any]:
    """Return what recording adds to a call, and that as a share of a run with many calls."""
    from voxcast.phases import recorder

    command = [
        sys.executable, "-c", RECORDED, recorder.__file__, str(folder / "trace"), str(CALLS),
        str(ROUNDS), str(CALLS_PER_S),
    ]  # fmt: skip
    rounds = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    added_s = [traced_s - plain_s for plain_s, traced_s in rounds["calls"]]
    step_s = statistics.median(plain_s for plain_s, _ in rounds["steps"])
    shares = [traced_s / plain_s - 1 for plain_s, traced_s in rounds["steps"]]
    overhead = statistics.mean(added_s) * CALLS_PER_S
    return {
        "plain_call_us": 1e6 * statistics.median(plain_s for plain_s, _ in rounds["calls"]),
        "added_to_a_call_us": 1e6 * statistics.mean(added_s),
        "added_to_a_call_us_of_rounds": [1e6 * s for s in sorted(added_s)],
        "overhead_at_10000_calls_per_s": overhead,
        "with_work_between": {
            "calls_per_s": 1 / step_s,
            "overhead": statistics.median(shares),
            "overhead_of_rounds": sorted(shares),
        },
        "bound_overhead": BOUND_OVERHEAD,
        "within_bound": overhead <= BOUND_OVERHEAD,
    }


def main() -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        figures = {"machine": machine(), **recording(Path(name))}
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
