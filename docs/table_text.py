"""What the tables of the pages have in common: results that are read, numbers that are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
NONE = "–"

Rows = list[list[str]]


def results(path: str) -> Any:
    """Return the content of a JSON file under ``published/``."""
    return json.loads((PROJECT / "published" / path).read_text(encoding="utf-8"))


def percent(value: float) -> str:
    """Write a percentage with two digits."""
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def with_interval(errors: dict[str, Any]) -> str:
    """Write a mean absolute percentage error with its 95 % interval over subjects."""
    if errors["mape_interval"] is None:  # of one subject
        return percent(errors["mape"])
    low, high = errors["mape_interval"]
    return f"{percent(errors['mape'])} ({max(low, 0):.1f} to {high:.1f})"


def markdown(head: list[str], rows: Rows) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
