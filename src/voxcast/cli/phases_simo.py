"""Phases of a run from one value a tick, for ``voxcast phases signature --values``.

A value is the sum of the orders of magnitude of the computation of all processes in a tick (SIMO).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


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
