"""The process of the metronome: ``python -m voxcast.profiling.metronome_process PERIOD_S``.

It writes a line when it is ready. One byte on its standard input starts it and the next one stops
it, upon which it writes the mean seconds of each kernel in a line of JSON. It ends with its input.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import Counter

from voxcast.profiling.kernels import Kernels, make_kernels

STDIN, STDOUT = 0, 1
SHARE = 0.02  # of a core, at most: where the kernels are slow there are longer pauses


def main() -> int:
    """Time the kernels between each two bytes of the standard input."""
    kernels, period_s = make_kernels(), float(sys.argv[1])
    os.write(STDOUT, b"ready\n")
    while os.read(STDIN, 1) and (reading := timed_until_stopped(kernels, period_s)):
        os.write(STDOUT, f"{reading}\n".encode())
    return 0


def timed_until_stopped(kernels: Kernels, period_s: float) -> str:
    """Time the kernels until a byte comes; return the means as JSON, or empty at the end."""
    sums: Counter[str] = Counter()
    ticks, begun_s, spent_s = 0, time.process_time(), 0.0
    # The first tick is one pause after the start: a short run is not disturbed at all.
    while not select.select([STDIN], [], [], max(period_s, spent_s / SHARE))[0]:
        start_s = time.process_time()
        sums.update(kernels.timed())
        ticks += 1
        spent_s = time.process_time() - start_s
    if not os.read(STDIN, 1):
        return ""
    means_s = {name: total_s / ticks for name, total_s in sums.items()}
    cpu_s = time.process_time() - begun_s
    return json.dumps({"means_s": means_s, "ticks": ticks, "cpu_s": cpu_s})


if __name__ == "__main__":
    sys.exit(main())
