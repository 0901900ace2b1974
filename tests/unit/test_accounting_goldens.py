"""Accounting of Slurm is read as it was recorded: rows, refused lines, jobs that never ran."""

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest

from voxcast.runs.importer import from_slurm

TESTS = Path(__file__).parents[1]
GOLDENS = TESTS / "goldens" / "accounting"
SAMPLES = TESTS / "samples" / "imports"
KINDS = ("bad", "skipped", "unread")


def reading(path: Path) -> tuple[list[dict], dict[str, list[tuple[int, str]]]]:
    """Rows by name of column, and remarks by kind: the one place that knows the reader."""
    records = from_slurm(path)
    kept = set(records.lines)
    unread = [remark for remark in records.unread.listed() if remark[0] in kept]
    return records.rows, dict(
        zip(KINDS, (records.refused.listed(), records.skipped.listed(), unread), strict=True)
    )


def value_of(row: dict, name: str) -> object:
    value = row.get(name)
    if name.endswith("_json"):
        return json.loads(value)
    return None if value == "" or pd.isna(value) else value


@pytest.mark.parametrize("golden", sorted(GOLDENS.glob("*.json")), ids=lambda path: path.stem)
def test_accounting_is_read_as_recorded(golden: Path) -> None:
    recorded = json.loads(golden.read_text())
    text = GOLDENS / f"{golden.stem}.txt"
    rows, remarks = reading(text if text.exists() else SAMPLES / text.name)
    assert len(rows) == len(recorded["rows"])
    names = set().union(*recorded["rows"])
    for row, expected in zip(rows, recorded["rows"], strict=True):
        if expected.get("peak_rss_bytes") is None:
            expected.pop("memory_method", None)  # it was kept where the peak is out of range
        assert {n: value_of(row, n) for n in names} == {n: value_of(expected, n) for n in names}
    for kind in KINDS:
        assert sorted(remarks[kind]) == sorted(tuple(remark) for remark in recorded[kind])


def test_the_recorded_cell_keys_are_all_there() -> None:
    """That each follows from the columns of its row is tested beside the records."""
    recorded = json.loads((TESTS / "goldens" / "cell_keys.json").read_text())
    history = TESTS.parent / "data" / "history"
    assert sum(part["runs"] for part in recorded.values()) == 1696
    for part, expected in recorded.items():
        keys = sorted(pd.read_parquet(history / part / "runs.parquet")["cell_key"])
        sha256 = hashlib.sha256("\n".join(keys).encode()).hexdigest()
        assert {"runs": len(keys), "sha256": sha256} == expected
