"""``voxcast phases signature``: the phases of a parallel run, with their times and weights.

Phases of a run from one value a tick, for ``voxcast phases signature --values``.

A value is the sum of the orders of magnitude of the computation of all processes in a tick (SIMO).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast.cli import options
from voxcast.cli.phases_predict import MinShare, Tolerance, grouping, read_logical_trace
from voxcast.errors import TableError
from voxcast.quantities import counted, format_seconds, format_short_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    import numpy as np

    from voxcast.phases.signature import Signature


TOLERANCE_VALUES = 1.0


def signature(
    path: Annotated[Path, Argument(metavar="TRACE|FILE", show_default=False)],
    values: Annotated[
        bool,
        Option("--values", help="FILE has one value a tick, a line each: group these (SIMO)."),
    ] = False,
    tolerance: Tolerance = None,
    min_share: MinShare = None,
    as_json: options.Json = False,
) -> int:
    """Show the phases of a parallel run, with their times and weights.

    The time of a phase is the mean of its ticks, by the slowest process; the sum of time times
    weight is the time of the run. With --values a tick joins the earliest founded phase whose
    founder is within the tolerance, or founds a phase.
    """
    if values:
        show_values(path, *grouping(tolerance, min_share, TOLERANCE_VALUES), as_json=as_json)
        return 0
    from voxcast.phases.signature import phases_of
    from voxcast.phases.signature import signature as signature_of

    decades, least = grouping(tolerance, min_share)
    trace = read_logical_trace(path)
    grouped = phases_of(trace, decades, min_share=least)
    result = signature_of(trace, grouped)
    if result.dropped_phases:
        print(
            f"voxcast: {counted(result.dropped_phases, 'phase')} with less than "
            f"{100 * least:g}% of the time of all processes dropped, "
            f"{format_short_seconds(result.dropped_s)} together",
            file=sys.stderr,
        )
    if as_json:
        unit = trace.events.computation_unit
        content = asdict(result) | {"total_s": result.total_s, "computation_unit": unit}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _show(result)
    return 0


def _show(result: Signature) -> None:
    print(
        f"{result.source}: {counted(result.processes, 'process')}, "
        f"{counted(result.ticks, 'tick')}, "
        f"{format_seconds(result.elapsed_s)}; {result.communication_share:.0%} of the time of all "
        "processes in communication"
    )
    rows = [("phase", "operations", "weight", "time", "computation", "communication", "share")]
    rows += [
        (str(n), phase.communication, str(phase.weight), format_short_seconds(phase.time_s),
         format_short_seconds(phase.computation_s), format_short_seconds(phase.communication_s),
         f"{phase.share:.1%}")
        for n, phase in enumerate(result.phases)
    ]  # fmt: skip
    print(text_table(rows, "<<>>>>>", indent="  "))
    beside = []
    if result.dropped_phases:
        dropped = counted(result.dropped_phases, "dropped phase")
        beside.append(f"{dropped} {format_short_seconds(result.dropped_s)}")
    if result.after_s > 0:
        beside.append(f"after the last event {format_short_seconds(result.after_s)}")
    print(
        f"  sum of weight × time{''.join(f', {text}' for text in beside)}: "
        f"{format_seconds(result.total_s)}"
    )


def show_values(path: Path, tolerance: float, min_share: float, *, as_json: bool) -> None:
    """Print the phases in the order of their founding.

    Raises
    ------
    TableError
        If the file is missing, or a line is no finite number.
    """
    from voxcast.phases.signature import grouped

    values = _values(path)
    phases = grouped(values, tolerance, min_share=min_share)
    if phases.dropped_phases:
        print(
            f"voxcast: {phases.dropped_phases} phases with less than "
            f"{100 * min_share:g}% of the ticks dropped, "
            f"{phases.dropped_share:.2%} of the ticks together",
            file=sys.stderr,
        )
    rows = list(zip(phases.founder.tolist(), phases.weight.tolist(), phases.share, strict=True))
    if as_json:
        content = {
            "n_ticks": len(values),
            "tolerance": tolerance,
            "phases": [
                {
                    "founder": founder,
                    "weight": weight,
                    "share": float(share),
                    "ticks": ticks.tolist(),
                }
                for (founder, weight, share), ticks in zip(rows, phases.ticks(), strict=True)
            ],
            "dropped_phases": phases.dropped_phases,
            "dropped_share": phases.dropped_share,
        }
        print(json.dumps(content, allow_nan=False))
    else:
        head = ("phase", "founder", "ticks", "share")
        body = [
            (str(n), f"{founder:g}", str(weight), f"{share:.1%}")
            for n, (founder, weight, share) in enumerate(rows)
        ]
        print(text_table([head, *body], "<>>>"))


def _values(path: Path) -> np.ndarray:
    """Read one number a line; whole numbers stay such. Empty lines count for nothing."""
    import numpy as np

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise TableError("no such file", path) from None
    except UnicodeDecodeError:
        raise TableError("is no text", path, "it must have one number a line") from None
    numbers = [line for line in lines if line.strip()]
    if not numbers:
        raise TableError("has no values", path, "it must have one number a line")
    try:
        values = np.array(numbers, dtype=np.float64)
    except ValueError:
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        _refuse(path, lines)
    is_whole = np.all(values == np.rint(values)) and np.abs(values).max() < 2**53
    return values.astype(np.int64) if is_whole else values


def _refuse(path: Path, lines: list[str]) -> None:
    import math

    for number, line in enumerate(lines, start=1):
        try:
            is_finite = not line.strip() or math.isfinite(float(line))
        except ValueError:
            is_finite = False
        if not is_finite:
            where = f"{path}, line {number}"
            raise TableError(
                f"{line.strip()[:40]!r} is no finite number", where, "give one number a line"
            )
