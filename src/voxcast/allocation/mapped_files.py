"""Pages of files that an application maps, shared libraries above all.

The memory of a run is what its processes hold, without such pages. Slurm counts them where it adds
up resident pages, once for each process.
"""

from __future__ import annotations

# The largest differences in results/memory/mapped_files.json, by benchmarks/mapped_files.py,
# rounded up to steps: libraries differ a little by version and machine.
STEP_BYTES = 32 * 2**20
MEASURED_BYTES = {
    "ants_register": 160 * 2**20,
    "ants_segment": 160 * 2**20,
    "dnn_train": 160 * 2**20,
    "tile_segment": 224 * 2**20,
}
# Of an application that was not measured: that of the largest.
OTHER_BYTES = max(MEASURED_BYTES.values())


def mapped_files_bytes(app: str) -> int:
    """Return how much a sum of resident pages counts beyond the memory of a run.

    Examples
    --------
    >>> mapped_files_bytes("ants_segment") // 2**20
    160
    """
    return MEASURED_BYTES.get(app, OTHER_BYTES)
