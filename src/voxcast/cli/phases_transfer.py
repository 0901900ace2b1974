"""``voxcast phases transfer``: the time of a parallel run on another machine."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from voxcast.cli import options
from voxcast.cli.trace_options import Level, Trace, checked_share, read_logical_trace
from voxcast.quantities import format_seconds, format_short_seconds
from voxcast.text_table import text_table

NO_SAMPLE = 0.1  # what the same ticks of the base may miss of its time before it is said


def transfer(
    base_path: Trace,
    short: Annotated[
        Path, Option("--run", metavar="TRACE", help="A short run on the other machine.")
    ],
    level: Level = 0.9,
    as_json: options.Json = False,
) -> int:
    """Predict the time of a whole run on another machine, from a short run there.

    The short run is of the same program with fewer iterations or epochs, and all else the same.
    Each phase takes the time that it took there.
    """
    checked_share(level, "--level")

    from voxcast.phases.predict import transfer as transferred

    base, run = read_logical_trace(base_path), read_logical_trace(short)
    result = transferred(base, run, level)
    if as_json:
        content = {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in asdict(result).items()
        }
        content |= {"processes": len(base.events.processes), "source": run.events.source}
        print(json.dumps(content, indent=2, allow_nan=False))
        return 0
    interval = (
        "too few cycles for an interval" if math.isinf(result.upper_s) else
        f"{100 * result.level:.3g}% interval {format_seconds(result.lower_s)} to "
        f"{format_seconds(result.upper_s)} (batch means of the short run)"
    )  # fmt: skip
    print(
        f"{base.events.source} took {format_seconds(result.base_elapsed_s)}; on the machine of "
        f"{run.events.source} it takes {format_seconds(result.total_s)}, {interval}"
    )
    if abs(result.base_by_same_ticks - 1) > NO_SAMPLE:
        print(
            f"  the iterations of {run.events.source} are no sample of the base: by its own same "
            f"ticks the base takes {result.base_by_same_ticks:.0%} of what it took"
        )
    rows = [("operations", "weight", "time", "weight there", "time there", "ratio")]
    for phase in result.phases:
        ratio = f"{phase.time_s / phase.base_s:.2f}" if phase.base_s else ""
        base_cells = str(phase.weight), format_short_seconds(phase.base_s)
        run_cells = str(phase.passes), format_short_seconds(phase.time_s)
        rows.append((phase.communication, *base_cells, *run_cells, ratio))
    print(text_table(rows, "<>>>>>", indent="  "))
    return 0
