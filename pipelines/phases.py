"""Collect the phases of all runs in one table."""

from __future__ import annotations

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

from voxcast.errors import exits_cleanly
from voxcast.files import atomic_path
from voxcast.phases.logged import phase_table


@exits_cleanly
def main() -> int:
    """Write ``data/profiles/phases.parquet``."""
    table = phase_table(Path("data/runs") / device for device in ("cpu", "gpu"))
    with atomic_path("data/profiles/phases.parquet") as partial:
        table.to_parquet(partial, index=False)
    print(f"{len(table)} phases of {table['cell_key'].nunique()} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
