"""Receipts of promotions, rollbacks and comparisons: one line each, only ever added."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.files import locked, write_text
from voxcast.models.selection.comparison import disturbed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.models.selection.comparison import Comparison

LOG = Path("models/receipts.jsonl")


def add_receipt(project: Path, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Append a receipt to the log of a project and return it.

    Parameters
    ----------
    kind : {"promotion", "rollback", "comparison"}
        The decision it records.
    content : mapping
        JSON-able facts.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    receipt = {"kind": kind, "at": at, **content}
    path = project / LOG
    with locked(path.parent):
        lines = path.read_text(encoding="utf-8") if path.is_file() else ""
        write_text(path, f"{lines}{json.dumps(receipt, sort_keys=True, allow_nan=False)}\n")
    return receipt


def receipts(project: Path) -> list[dict[str, Any]]:
    """Return all receipts of a project, the oldest first; unreadable lines are left out."""
    path = project / LOG
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def rolled_back(project: Path, app: str) -> set[str]:
    """Return the hashes of forecasters of an application that a person rolled back.

    One that a person brought back afterwards is not among them.
    """
    hashes: set[str] = set()
    for receipt in receipts(project):
        if receipt.get("kind") == "rollback":
            hashes |= {receipt["removed"][app]} if app in receipt.get("removed", {}) else set()
            hashes -= {receipt.get("restored", {}).get(app)}
        elif receipt.get("kind") == "promotion" and receipt.get("app") == app:
            hashes -= {receipt.get("forecaster_sha256")}
    return hashes


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison for a receipt: means with their intervals; None for an unknown value."""

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    def numbers(interval: dict[str, Any]) -> dict[str, Any]:
        return {key: finite(number) for key, number in interval.items()}

    content = asdict(comparison)
    by_target = content.pop("gain_by_target")
    return {
        **{name: numbers(interval) for name, interval in content.items()},
        "gain_by_target": {name: numbers(interval) for name, interval in by_target.items()},
    }


def under_load(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each image set with runs that were measured beside other work."""
    sentences = []
    noisy = disturbed(table)
    sets = table["image_set"].astype(str) if "image_set" in table else ""
    for name, rows in table.assign(image_set=sets, noisy=noisy).groupby("image_set", sort=True):
        count = int(rows["noisy"].sum())
        if count:
            share = f"{count} of {len(rows)} runs ({100 * count / len(rows):.0f} %)"
            of_set = f" of image set {name!s}" if name else ""
            sentences.append(f"{share}{of_set} were measured beside other work")
    return sentences
