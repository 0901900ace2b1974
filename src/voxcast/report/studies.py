"""The page of the studies with available results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.files import read_json
from voxcast.report.study_tables import MAKERS, study_tables
from voxcast.report.templates import render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TEMPLATE = "studies.html.j2"


def read_studies(folder: Path) -> dict[str, Any]:
    """Read the results of the studies in ``folder`` by name; a missing folder gives none.

    Raises
    ------
    TableError
        If a file cannot be read.
    """
    results = {}
    for path in sorted(folder.glob("*.json")):
        try:
            results[path.stem] = read_json(path)
        except (OSError, ValueError) as error:
            raise TableError(f"cannot be read ({error})", path, "run `make studies`") from None
    return results


def studies_page(results: Mapping[str, Any]) -> str:
    """Return the page of the studies as HTML; it lists studies without a result."""
    missing = [name for name in MAKERS if name not in results]
    return render(TEMPLATE, {"study_tables": study_tables(results), "missing": missing})
