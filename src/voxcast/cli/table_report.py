"""The report of ``voxcast learn TABLE``: errors on held-out rows, and whether bounds hold."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.models.conformal import BoundEvidence
    from voxcast.models.table_fitting import FittedTable

WIDTH = 100  # of lines of text
NOVELTY = {
    "groups": "groups not seen before",
    "configurations": "configurations not seen before",
    "runs": "new runs of the configurations in the table",
}
MOST = 0.5  # share of held-out rows with a calibrated bound, for a coverage that describes it
METRICS = ("mape", "median_ape", "upp", "ov_mape", "coverage")


def show(fitted: FittedTable, target: str, out: Path, trials_by_family: int | None) -> None:
    """Print the evaluation of a fitted table.

    Parameters
    ----------
    target : str
        Name of the predicted column.
    out : Path
        Folder of the model.
    trials_by_family : int or None
        Most trials of each family; None if the time budget ended them.
    """
    size = f"{fitted.rows} rows"
    if fitted.novelty != "runs":
        size += f" of {fitted.groups} {fitted.novelty}"
    print(f"{target}: {fitted.family}, from {size}")
    print(f"errors are for {NOVELTY[fitted.novelty]}:")
    names_by_values: dict[tuple[float, ...], list[str]] = {}
    for name, metrics in {"selected": fitted.metrics, **fitted.candidates}.items():
        values = (*(metrics[n] * (100 if n == "coverage" else 1) for n in METRICS),
                  metrics["asked_over_used"])  # fmt: skip
        names_by_values.setdefault(tuple(round(value, 1) for value in values), []).append(name)
    labels = {values: ", ".join(names) for values, names in names_by_values.items()}
    width = min(30, max(22, *map(len, labels.values())))
    heads = "".join(f"{name:>12}" for name in (*METRICS, "asked/used"))
    print(f"  {'held out':{width}}{heads}")
    for values, label in sorted(labels.items()):
        figures = "".join(f"{value:>10.1f} %" for value in values[:-1]) + f"{values[-1]:>11.1f}×"
        if len(label) > width:
            print(f"  {label}")
            label = ""
        print(f"  {label:{width}}{figures}")
    print("  mape, median_ape: mean and median absolute error; upp: rows predicted too low")
    print("  ov_mape: mean excess of the others; coverage: rows below their upper bound")
    print("  asked/used: the sum of the upper bounds over the sum of what was measured")
    print("  selected: the choice was made anew in each fold, by the errors within it")
    smallest = min(fitted.candidates, key=lambda name: fitted.candidates[name]["mape"])
    family_mape = fitted.candidates.get(fitted.family, fitted.metrics)["mape"]
    if round(family_mape - fitted.candidates[smallest]["mape"], 1) > 0:
        print(
            f"  {fitted.family} was chosen by the errors of cross-validation on all rows; "
            f"the smallest mape above, of {smallest}, may be chance"
        )
    for line in _bound_lines(fitted.model.evidence(), fitted.metrics["calibrated"]):
        print(line)
    clock = "" if fitted.deterministic else "; the search stopped at the time budget"
    count = f"{fitted.trials} trials"
    if trials_by_family is not None:
        count += f", at most {trials_by_family} for each family"
    print(f"  {count}{clock}; model in {out}")


def _bound_lines(evidence: BoundEvidence, calibrated_share: float) -> Iterator[str]:
    """Yield whether the upper bound of the model, and of the held-out models, are calibrated."""
    name = f"the {100 * evidence.quantile:g} % bound"
    if evidence.missing:
        texts = [
            f"{name} is not calibrated: {evidence.text()}",
            "until it is, upper bounds are the largest error that was seen, with a margin",
            f"for a calibrated one {evidence.advice()}",
        ]
    elif calibrated_share < MOST:
        texts = [
            f"{name} of the model is calibrated; of those held out, by models of fewer rows, "
            f"{100 * calibrated_share:.0f} % were, so the coverage above tells little of it"
        ]
    else:
        return
    for text in texts:
        yield from textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
