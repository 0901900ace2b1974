"""The study `domain` as a table: characteristics of real heads beside the ranges of cohorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.report.formatting import heading
from voxcast.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def domain_table(result: Mapping[str, Any]) -> Table:
    """Return the range of each characteristic among heads and in each cohort."""
    heads = {len(comparison["heads"]) for comparison in result.values()}
    rows = []
    for name in next(iter(result.values()))["range"]:
        ranges = [comparison["range"][name] for comparison in result.values()]
        missed = [
            sum(
                name == miss["characteristic"]
                for misses in comparison["misses"].values()
                for miss in misses
            )
            for comparison in result.values()
        ]
        cohorts = (
            f"{_ends(of['cohort'])}{f'; {outside} outside' if outside else ''}"
            for of, outside in zip(ranges, missed, strict=True)
        )
        rows.append([name, _ends(ranges[0]["heads"]), *cohorts])
    rows.append(
        ["heads within all ranges", "", *(str(of["heads_inside"]) for of in result.values())]
    )
    caption = (
        f"Whether {max(heads)} real heads belong to the generated cohorts: smallest and "
        "largest value of each characteristic, the 1 to 99 % range of each cohort, and how many "
        "heads lie outside it"
    )
    return Table(caption, ["", "Heads", *map(heading, result)], rows)


def _ends(values: Sequence[float]) -> str:
    return " to ".join(f"{value:.3g}" for value in values)
