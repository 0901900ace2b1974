"""A model of any table, for ``voxcast learn TABLE --target COL --out DIR``.

The report of ``voxcast learn TABLE``: errors on held-out rows, and whether bounds hold.
"""

from __future__ import annotations

import json
import os
import shlex
import textwrap
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError
from voxcast.files import atomic_folder, remove_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.features.screening import Screening
    from voxcast.models.conformal import BoundEvidence
    from voxcast.models.regressor import RuntimeRegressor
    from voxcast.models.table_model import TableModel


CARD_FILE = "card.json"
BUDGET_S = 300.0


@dataclass(frozen=True)
class TableQuestion:
    """How to learn from a table; see `voxcast.models.regressor.fit`."""

    target: str
    group: str | None = None
    exclude: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    quantile: float = 0.9
    budget_s: float | None = None
    trials: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises
        ------
        ConfigError
            If one is out of range, or two contradict each other.
        """
        if not 0.5 < self.quantile < 1:
            raise ConfigError(f"must be between 0.5 and 1, not {self.quantile}", "--quantile")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"must be 0 to {2**32 - 1}, not {self.seed}", "--seed")
        if both := sorted({*self.keep} & {*self.exclude}):
            raise ConfigError("is both kept and excluded", both[0], "name it once")
        if self.trials is not None and self.budget_s is not None:
            raise ConfigError("cannot both be given", "--trials and --time-budget")
        if self.budget_s == 0:
            raise ConfigError("must be above 0", "--time-budget")


def learn_table(
    table_path: Path, question: TableQuestion, out: Path, *, force: bool, as_json: bool
) -> int:
    """Judge the families on held-out groups, fit the best on all rows, and save it."""
    started = time.monotonic()
    budget_s = BUDGET_S if question.budget_s is None else question.budget_s
    _require_free(out, force=force)
    from voxcast.features.any_table import read_csv
    from voxcast.log import progress
    from voxcast.models.regressor import FAMILIES, OUTER, fit

    table = read_csv(table_path)
    with progress(total=(OUTER + 1) * len(FAMILIES), desc="fit") as bar:

        def step(description: str) -> None:
            bar.set_postfix_str(description)
            bar.update()

        regressor = fit(
            table, question.target, groups=question.group, exclude=question.exclude,
            keep=question.keep, quantile=question.quantile,
            trials=question.trials, time_budget=started + budget_s - time.monotonic(),
            random_state=question.seed, on_step=step,
        )  # fmt: skip
    screening, left_out = regressor.screening_, regressor.left_out_
    content = {
        "family": regressor.family_,
        "rows": regressor.rows_,
        "rows_with_a_label": len(table) - len(set().union(*left_out.values())),
        "groups": regressor.groups_,
        "errors_are_for": NOVELTY[regressor.novelty_],
        "left_out": {reason: len(rows) for reason, rows in left_out.items()},
        "columns": _columns(screening),
        "trials": regressor.trials_,
        "deterministic": regressor.deterministic_,
        "quantile": question.quantile,
        "bound": regressor.model_.evidence().to_json(),
        "metrics": regressor.metrics_,
        "candidates": regressor.cv_results_.to_dict("index"),
        "model": str(out),
    }
    _save(regressor.model_, content, out)
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        for line in (*_close_lines(screening), *_left_out_lines(screening)):
            print(line)
        show(regressor, question.target, out, question.trials)
    return 0


def _require_free(out: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be written, or holds something, before the time is spent."""
    from voxcast.models.table_model import MODEL_FILE

    if out.exists() and not out.is_dir():
        raise ConfigError("is not a folder", out, "choose another with --out")
    if out.is_dir() and any(out.iterdir()):
        if not (out / MODEL_FILE).is_file():
            raise ConfigError("holds other files than a model", out, "choose another folder")
        if not force:
            raise ConfigError("holds a model", out, "--force replaces it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", out.parent) from None
    if not os.access(out.parent, os.W_OK):
        raise ConfigError("cannot be written", out.parent)


def _save(model: TableModel, card: dict[str, object], out: Path) -> None:
    """Write the model and its card, in place of an earlier one once they are complete."""
    with atomic_folder(out) as partial:
        model.save(partial)
        write_text(partial / CARD_FILE, json.dumps(card, indent=2) + "\n")
        if out.is_dir():
            remove_folder(out)


def _columns(screening: Screening) -> dict[str, object]:
    """Return which columns are used, left out, kept by request, and close to the target."""
    return {
        "used": sorted((*screening.columns.numbers, *screening.columns.texts)),
        "left_out": screening.left_out,
        "kept": screening.requested,
        "close": screening.close,
    }


def _close_lines(screening: Screening) -> Iterator[str]:
    for name, reason in screening.close.items():
        yield f"Is {name} known before the run? It {reason}."
        yield f"  If not, the errors below are too good: --exclude {shlex.quote(name)}"


def _left_out_lines(screening: Screening) -> Iterator[str]:
    for name, reason in screening.left_out.items():
        yield f"left out: {name} {reason}; --keep {shlex.quote(name)} uses it"
    for name, reason in screening.requested.items():
        yield f"kept: {name}: {reason}; the errors are too good if it is known only afterwards"


WIDTH = 100  # of lines of text
NOVELTY = {
    "groups": "groups not seen before",
    "configurations": "configurations not seen before",
    "runs": "new runs of the configurations in the table",
}
MOST = 0.5  # share of held-out rows with a calibrated bound, for a coverage that describes it
METRICS = ("mape", "median_ape", "upp", "ov_mape", "coverage")


def show(
    regressor: RuntimeRegressor, target: str, out: Path, trials_by_family: int | None
) -> None:
    """Print the evaluation of a fitted regressor.

    Parameters
    ----------
    target : str
        Name of the predicted column.
    out : Path
        Folder of the model.
    trials_by_family : int or None
        Most trials of each family; None if the time budget ended them.
    """
    candidates = {str(n): dict(row) for n, row in regressor.cv_results_.iterrows()}
    size = f"{regressor.rows_} rows"
    if regressor.novelty_ != "runs":
        size += f" of {regressor.groups_} {regressor.novelty_}"
    print(f"{target}: {regressor.family_}, from {size}")
    print(f"errors are for {NOVELTY[regressor.novelty_]}:")
    names_by_values: dict[tuple[float, ...], list[str]] = {}
    for name, metrics in {"selected": regressor.metrics_, **candidates}.items():
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
    smallest = min(candidates, key=lambda name: candidates[name]["mape"])
    family_mape = candidates.get(regressor.family_, regressor.metrics_)["mape"]
    if round(family_mape - candidates[smallest]["mape"], 1) > 0:
        print(
            f"  {regressor.family_} was chosen by the errors of cross-validation on all rows; "
            f"the smallest mape above, of {smallest}, may be chance"
        )
    for line in _bound_lines(regressor.model_.evidence(), regressor.metrics_["calibrated"]):
        print(line)
    clock = "" if regressor.deterministic_ else "; the search stopped at the time budget"
    count = f"{regressor.trials_} trials"
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
