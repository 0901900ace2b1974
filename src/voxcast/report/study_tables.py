"""Tables of nested results, such as results of studies, and the page of the studies.

A table is described by where its rows are in a result, and where in a row its columns are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.files import read_json
from voxcast.report.sections import Part, Section, page
from voxcast.report.tables import Table
from voxcast.report.wording import TITLES, percent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Columns = Mapping[str, tuple[str, str]]

NONE = "–"
UNITS: dict[str, Callable[[Any], str]] = {
    "%": lambda value: percent(max(value, 0.0)),
    "share": lambda value: percent(100 * value),
    "×": lambda value: f"{value:.2f}×",
    "points": lambda value: f"{value:+.1f}",
    "s": lambda value: f"{value:.0f} s",
    "3": lambda value: f"{value:.3g}",
    "": str,
}


def cell(row: Any, path: str, unit: str) -> str:
    """Write the value at a path with its interval, if it has one.

    Examples
    --------
    >>> row = {"cpu_s": {"mape": 5.04, "mape_interval": [-1.0, 6.2]}}
    >>> cell(row, "cpu_s/mape", "%"), cell(row, "runtime_s/mape", "%")
    ('5.0 % (0 to 6.2 %)', '–')
    >>> cell({"covered": 59, "subjects": 60, "interval": [0.911, 1]}, "covered", "share")
    '59 of 60 (91 to 100 %)'
    """
    value, parent, name = row, {}, ""
    for name in path.split("/"):
        parent, value = value, value.get(name) if isinstance(value, Mapping) else None
    if value is None or isinstance(value, str):
        return value or NONE
    write = UNITS[unit]
    if isinstance(value, list):
        return " to ".join(map(write, value))
    text = f"{value} of {parent['subjects']}" if name == "covered" else write(value)
    interval = parent.get(f"{name}_interval", parent.get("interval"))
    if interval is None:
        return text
    low, high = map(write, interval)
    return f"{text} ({low.removesuffix(' %')} to {high})"


def rows_at(result: Any, pattern: str, label: str = "") -> Iterator[tuple[str, Any]]:
    """Yield label and content of the parts of a result whose path matches; ``*`` is any name.

    Examples
    --------
    >>> list(rows_at({"a": {"x": 1}, "b": {"x": 2}}, "*/x"))
    [('a', 1), ('b', 2)]
    """
    name, _, rest = pattern.partition("/")
    items = result.items() if isinstance(result, Mapping) else [("", part) for part in result]
    for key, part in items:
        if name in ("*", key):
            longer = ": ".join(text for text in (label, key if name == "*" else "") if text)
            if rest and isinstance(part, (Mapping, list)):
                yield from rows_at(part, rest, longer)
            elif not rest:
                yield longer, part


def rows_of(result: Any, pattern: str, columns: Columns) -> list[list[str]]:
    """Return the rows of a table that have any value."""
    rows = [
        [label, *(cell(part, path, unit) for path, unit in columns.values())]
        for label, part in rows_at(result, pattern)
    ]
    return [row for row in rows if set(row[1:]) != {NONE}]


@dataclass(frozen=True)
class Study:
    """A table of a study: title, one sentence about it, where its rows and columns are."""

    title: str
    sentence: str
    rows: str
    columns: Columns


HARP = (
    "HARP is a published predictor, trained mostly on runs that were scaled down; "
    "WTM and MAE are its two ways of selecting a model."
)
CONTENDERS = {
    "voxcast": "voxcast", "harp_WTM": "HARP, WTM", "harp_MAE": "HARP, MAE",
    "harp_full_scale": "HARP, full scale alone",
    "harp_WTM_custom": "HARP custom, WTM", "harp_MAE_custom": "HARP custom, MAE",
    "voxels": "linear in voxels", "constant": "constant",
}  # fmt: skip
_NEW_BATCH: Columns = {
    **{f"Error of {title}": (f"errors/{t}/mape", "%") for t, title in TITLES.items()},
    "CPU time at the usual speed": ("errors/cpu_s/normalised_mape", "%"),
    **{f"Subjects below the bound of {title}": (f"coverage/{t}/covered", "share")
       for t, title in TITLES.items()},
    "Requested / used time": ("sharpness/runtime_s/asked_over_used", "×"),
    "Same with one request for all": ("sharpness/runtime_s/one_request_asked_over_used", "×"),
    "Runs": ("answers/runs", ""), "out of range": ("answers/out_of_range", ""),
    "calibrated": ("answers/calibrated", ""),
}  # fmt: skip
STUDIES: dict[str, tuple[Study, ...]] = {
    "splits": (
        Study(
            "Error of wall time by what is held out",
            f"Mean absolute error with 95 % interval over subjects. {HARP}",
            "*/*",
            {title: (f"{name}/errors/runtime_s/mape", "%") for name, title in CONTENDERS.items()}
            | {"Not measurable": ("not_measurable", "")},
        ),
        Study(
            "Requested time on unseen subjects",
            "The 95 % bound of voxcast against the adjusted time of HARP: share of runs for which "
            "it is too little (UPP), and excess of the others (OV_MAPE).",
            "*/subject/*",
            {
                "UPP": ("request/upp", "%"), "OV_MAPE": ("request/ov_mape", "%"),
                "Requested / used": ("request/asked_over_used", "×"),
            },
        ),
    ),
    "ablation": (
        Study(
            "Ablation of features",
            "Error on unseen subjects by the features given to the model, and what leaving the "
            "others out costs in CPU time (paired).",
            "*/*",
            {
                "Error of CPU time": ("cpu_s/mape", "%"),
                "Error of peak memory": ("peak_rss_bytes/mape", "%"),
                "Against": ("cpu_s/against", ""),
                "Difference": ("cpu_s/difference/points", "points"),
            },
        ),
    ),
    "second_batch": (
        Study("A second batch", "Subjects that were not used for training.", "*", _NEW_BATCH),
    ),
    "real": (
        Study("Three real heads", "Heads of other scanners on another day.", "*", _NEW_BATCH),
    ),
    "heads": (Study("Thirteen real heads", "Heads of other scanners.", "*", _NEW_BATCH),),
    "transfer": (
        Study(
            "Transfer from one network to another",
            "Median error of CPU time by number of runs of the target; cost: their CPU time.",
            "*/*",
            {
                "Runs": ("runs", ""), "Cost": ("cost_s", "s"), "Without transfer": ("cold", "%"),
                "Scaled by one factor": ("transferred", "%"), "One pooled model": ("pooled", "%"),
            },
        ),
    ),
    "per_image": (
        Study(
            "Cost of request strategies",
            "Cost on unseen subjects, relative to requests of exactly the run time.",
            "*/*/ways/*",
            {"Normalised cost": ("normalised_cost", "×")},
        ),
        Study(
            "Requests by image",
            "Cost over that implied by the predicted distributions, and excess cost as a share "
            "of that of one strategy for all.",
            "*/*",
            {
                "Relative to implied": ("over_implied", "×"),
                "Remaining excess": ("excess_left", "share"),
            },
        ),
    ),
}  # fmt: skip


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
    missing = ", ".join(name for name in STUDIES if name not in results)
    sections = [
        Section(study.title, study.sentence, tables=[
            Table("", ["", *study.columns], rows_of(results[name], study.rows, study.columns))
        ])
        for name, studies in STUDIES.items() if name in results for study in studies
    ]  # fmt: skip
    lead = "these studies use the runs recorded with the project, not your runs"
    limits = [f"Not available yet: {missing}. `make studies` computes them."] if missing else []
    parts = [Part("Studies", sections)] if sections else []
    return page(Part("studies of the recorded histories", [], lead, cautions=limits), parts)
