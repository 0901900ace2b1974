"""The progress of a campaign: cells done and left, outcomes, time left, noise of repeats."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.time_left import TimeLeft
from voxcast.campaigns.unmeasured import missing_cells
from voxcast.files import canonical_json
from voxcast.history.repeats import ALLOCATION, TASK
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import pandas as pd

    from voxcast.records import Cell

# Columns that agree in runs which differ by their repeat alone.
SAME_RUN = (*TASK, *ALLOCATION)


def rows_elsewhere(
    cells: Mapping[str, Cell], history: pd.DataFrame, *, any_host: bool = False
) -> dict[str, dict[str, Any]]:
    """Return the rows of a recorded history by cell key, to resume on another machine.

    Parameters
    ----------
    any_host : bool
        A run on other hardware counts too. Whether it was noisy does then not matter, as it cannot
        be repeated here.
    """
    values = history.astype(object).where(history.notna(), None)
    rows = [dict(zip(history.columns, row, strict=True)) for row in values.to_numpy()]
    by_key: dict[str, dict[str, Any]] = {str(row["cell_key"]): row for row in rows}
    if any_host:
        alike = {(*(row[name] for name in SAME_RUN), row["repeat"]): row for row in rows}
        for key, cell in cells.items():
            row = alike.get((*_same_run(cell), cell.repeat))
            if row is not None and key not in by_key:
                by_key[key] = {**row, "noisy": False}
    return by_key


def overview(
    cells: Mapping[str, Cell],
    expected_s: Mapping[str, float],
    rows: Mapping[str, Mapping[str, Any]],
    again: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return one row for each application, scale and allocation of a campaign.

    Parameters
    ----------
    cells, expected_s : mapping
        Of the plan, by key.
    rows : mapping
        Records by key. Those of other cells (repeats of noisy runs, anchors) are counted apart.
    again : collection of str
        Keys of records that are tried again: their outcome is counted, but they are not done.

    Returns
    -------
    list of dict
        ``app``, ``scale``, ``device``, ``cpus``; ``done`` and ``left``, planned runs and, in the
        second, repeats of noisy ones; ``left_s``; ``repeats`` and ``anchors``, runs on record
        beside the planned ones; ``outcomes``, ``noisy``, and the median coefficients of variation
        of repeats, ``cv_runtime`` and ``cv_cpu`` with ``repeated``, the number of runs that were
        repeated.
    """
    missing = missing_cells(cells, rows, again)
    times = TimeLeft({**cells, **missing}, expected_s)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for key, cell in {**cells, **missing}.items():
        group = groups.setdefault(
            _group(vars(cell) | vars(cell.configuration)),
            {
                "done": 0,
                "left": 0,
                "left_s": 0.0,
                "repeats": 0,
                "anchors": 0,
                "outcomes": {},
                "noisy": 0,
            },
        )
        if key in rows:
            row = rows[key]
            if key not in missing:
                times.finish(key, cell, row["runtime_s"])
                group["done"] += 1
                group["noisy"] += bool(row["noisy"])
            group["outcomes"][row["outcome"]] = group["outcomes"].get(row["outcome"], 0) + 1
    for key, cell in missing.items():
        group = groups[_group(vars(cell) | vars(cell.configuration))]
        group["left"] += 1
        group["left_s"] += times.cell_s(key, cell)
    for key, row in rows.items():
        if key not in cells and row["repeat"] >= NOISY_REPEAT and _group(row) in groups:
            kind = "anchors" if row["repeat"] >= ANCHOR_REPEAT else "repeats"
            groups[_group(row)][kind] += 1
    noise = repeat_noise(rows.values())
    names = ("app", "scale", "device", "cpus")
    none = {"repeated": 0, "cv_runtime": None, "cv_cpu": None}
    return [
        {**dict(zip(names, group, strict=True)), **values, **noise.get(group, none)}
        for group, values in sorted(groups.items())
    ]


def repeat_noise(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the median coefficients of variation of quiet repeats, by group of `overview`.

    Repeats are of one machine; anchors, which are days apart, and repeats of noisy runs are
    excluded.
    """
    repeats: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        quiet = row["outcome"] == "completed" and not row["noisy"]
        if quiet and row["repeat"] < NOISY_REPEAT:
            same = (*(row[name] for name in SAME_RUN), row["host_id"])
            repeats.setdefault(same, []).append(row)
    cvs_by_group: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for runs in repeats.values():
        if len(runs) > 1:
            cvs = _cv([r["runtime_s"] for r in runs]), _cv([r["cpu_s"] for r in runs])
            cvs_by_group.setdefault(_group(runs[0]), []).append(cvs)
    return {
        group: {
            "repeated": len(cvs),
            "cv_runtime": statistics.median(wall for wall, _ in cvs),
            "cv_cpu": statistics.median(cpu for _, cpu in cvs),
        }
        for group, cvs in cvs_by_group.items()
    }


def _cv(values: list[float]) -> float:
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if mean else 0.0


def _group(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["app"], row["scale"], row["device"], row["cpus"]


def _same_run(cell: Cell) -> tuple[Any, ...]:
    columns = vars(cell) | vars(cell.configuration)
    columns |= {"parameters_json": canonical_json(cell.parameters)}
    return tuple(columns[name] for name in SAME_RUN)
