"""Exports of a site whose use and savings are known."""

from pathlib import Path

import pandas as pd
import pytest

import accounting

N_JOBS = 4000


@pytest.fixture(scope="session")
def truth() -> pd.DataFrame:
    """Jobs of a site whose use and savings are known; see ``benchmarks/accounting.py``."""
    return accounting.truth(N_JOBS)


@pytest.fixture(scope="session")
def export(truth: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the export of ``sacct`` of these jobs."""
    path = tmp_path_factory.mktemp("site") / "jobs.txt"
    path.write_text("".join(f"{line}\n" for line in accounting.lines(truth)))
    return path


@pytest.fixture(scope="session")
def few_columns(truth: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the export of a site that writes few columns."""
    path = tmp_path_factory.mktemp("site") / "few.txt"
    rows = accounting.lines(truth[:500], columns=accounting.FEW_COLUMNS)
    path.write_text("".join(f"{line}\n" for line in rows))
    return path
