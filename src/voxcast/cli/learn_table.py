"""A model of any table, for ``voxcast learn TABLE --target COL --out DIR``.

The report of ``voxcast learn TABLE``: errors on held-out rows, and whether bounds hold.
"""

from __future__ import annotations

import json
import os
import shlex
import textwrap
import time
from typing import TYPE_CHECKING, Any

from voxcast.cli import options
from voxcast.errors import ConfigError
from voxcast.files import atomic_folder, is_empty, write_text
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.features.screening import Screening
    from voxcast.models.conformal import BoundEvidence
    from voxcast.models.regressor import RuntimeRegressor


CARD_FILE = "card.json"
BUDGET_S = 300.0


def learn_table(
    table_path: Path,
    target: str,
    out: Path,
    *,
    budget_s: float | None,
    trials: int | None,
    quantile: float,
    as_json: bool,
    **columns: Any,
) -> int:
    """Judge the families on held-out groups, fit the best on all rows, and save it.

    Parameters
    ----------
    columns : groups, exclude and keep
        See `voxcast.models.regressor.fit`.

    Raises
    ------
    ConfigError
        If a value is out of range, or two contradict each other.
    """
    started = time.monotonic()
    both = ", ".join(sorted({*columns["keep"]} & {*columns["exclude"]}))
    options.refuse_if(
        (not 0.5 < quantile < 1, f"must be between 0.5 and 1, not {quantile}", "--quantile", None),
        (both != "", "is both kept and excluded", both, "name it once"),
        (trials is not None and budget_s is not None, "cannot both be given",
         "--trials and --time-budget", None),
        (budget_s == 0, "must be above 0", "--time-budget", None),
        (out.exists() and not out.is_dir(), "is not a folder", out, "choose another with --out"),
        (out.is_dir() and not is_empty(out), "is not empty", out,
         "choose another folder with --out"),
    )  # fmt: skip
    _require_writable(out.parent)
    from voxcast.features.any_table import read_csv
    from voxcast.log import progress
    from voxcast.models.regressor import FAMILIES, OUTER, fit

    table = read_csv(table_path)
    with progress(total=(OUTER + 1) * len(FAMILIES), desc="fit") as bar:

        def step(description: str) -> None:
            bar.set_postfix_str(description)
            bar.update()

        regressor = fit(
            table, target, quantile=quantile, trials=trials,
            time_budget=started + (budget_s or BUDGET_S) - time.monotonic(),
            on_step=step, **columns,
        )  # fmt: skip
    screening, left_out = regressor.screening_, regressor.left_out_
    content = {
        "family": regressor.family_,
        "rows": regressor.rows_,
        "rows_with_a_label": len(table) - len(set().union(*left_out.values())),
        "groups": regressor.groups_,
        "errors_are_for": NOVELTY[regressor.novelty_],
        "left_out": {reason: len(rows) for reason, rows in left_out.items()},
        "columns": {
            "used": sorted((*screening.columns.numbers, *screening.columns.texts)),
            "left_out": screening.left_out,
            "kept": screening.requested,
            "close": screening.close,
        },
        "trials": regressor.trials_,
        "deterministic": regressor.deterministic_,
        "quantile": quantile,
        "bound": regressor.model_.evidence().to_json(),
        "metrics": regressor.metrics_,
        "candidates": regressor.cv_results_.to_dict("index"),
        "model": str(out),
    }
    with atomic_folder(out) as partial:
        regressor.model_.save(partial)
        write_text(partial / CARD_FILE, json.dumps(content, indent=2) + "\n")
    lines = (*_column_lines(screening), *_lines(regressor, target, out, trials))
    return options.show(content, lines, as_json=as_json)


def _require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, before the time is spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", folder) from None
    if not os.access(folder, os.W_OK):
        raise ConfigError("cannot be written", folder)


def _column_lines(screening: Screening) -> list[str]:
    return [
        *(f"Is {name} known before the run? It {reason}.\n"
          f"  If not, the errors below are too good: --exclude {shlex.quote(name)}"
          for name, reason in screening.close.items()),
        *(f"left out: {name} {reason}; --keep {shlex.quote(name)} uses it"
          for name, reason in screening.left_out.items()),
        *(f"kept: {name}: {reason}; the errors are too good if it is known only afterwards"
          for name, reason in screening.requested.items()),
    ]  # fmt: skip


WIDTH = 100  # of lines of text
NOVELTY = {
    "groups": "groups not seen before",
    "configurations": "configurations not seen before",
    "runs": "new runs of the configurations in the table",
}
MOST = 0.5  # share of held-out rows with a calibrated bound, for a coverage that describes it
LEGEND = (
    "  mape, median_ape: mean and median absolute error; upp: rows predicted too low",
    "  ov_mape: mean excess of the others; coverage: rows below their upper bound",
    "  asked/used: the sum of the upper bounds over the sum of what was measured",
    "  selected: the choice was made anew in each fold, by the errors within it",
)
METRICS = ("mape", "median_ape", "upp", "ov_mape", "coverage")


def _lines(
    regressor: RuntimeRegressor, target: str, out: Path, trials_by_family: int | None
) -> Iterator[str]:
    """Yield the evaluation of a fitted regressor."""
    size = f"{regressor.rows_} rows"
    if regressor.novelty_ != "runs":
        size += f" of {regressor.groups_} {regressor.novelty_}"
    yield f"{target}: {regressor.family_}, from {size}"
    yield f"errors are for {NOVELTY[regressor.novelty_]}:"
    candidates = {str(n): dict(row) for n, row in regressor.cv_results_.iterrows()}
    best, *_ = names = sorted(candidates, key=lambda name: candidates[name]["mape"])
    errors = {"selected": regressor.metrics_, **{name: candidates[name] for name in names}}
    rows: list[tuple[str, ...]] = [("held out", *METRICS, "asked/used")]
    rows += [
        (name, *(f"{m[n] * (100 if n == 'coverage' else 1):.1f} %" for n in METRICS),
         f"{m['asked_over_used']:.1f}×")
        for name, m in errors.items()
    ]  # fmt: skip
    yield text_table(rows, "<>>>>>>", indent="  ")
    yield from LEGEND
    family_mape = candidates.get(regressor.family_, regressor.metrics_)["mape"]
    if round(family_mape - candidates[best]["mape"], 1) > 0:
        yield (
            f"  {regressor.family_} was chosen by the errors of cross-validation on all rows; "
            f"the smallest mape above, of {best}, may be chance"
        )
    yield from _bound_lines(regressor.model_.evidence(), regressor.metrics_["calibrated"])
    most = "" if trials_by_family is None else f", at most {trials_by_family} for each family"
    clock = "" if regressor.deterministic_ else "; the search stopped at the time budget"
    yield f"  {regressor.trials_} trials{most}{clock}; model in {out}"


def _bound_lines(evidence: BoundEvidence, calibrated_share: float) -> Iterator[str]:
    """Yield whether the upper bound of the model, and of the held-out models, are calibrated."""
    name = f"the {100 * evidence.quantile:g} % bound"
    texts = [
        f"{name} of the model is calibrated; of those held out, by models of fewer rows, "
        f"{100 * calibrated_share:.0f} % were, so the coverage above tells little of it"
    ]
    if evidence.missing:
        texts = [
            f"{name} is not calibrated: {evidence.text()}",
            "until it is, upper bounds are the largest error that was seen, with a margin",
            f"for a calibrated one {evidence.advice()}",
        ]
    for text in texts if evidence.missing or calibrated_share < MOST else ():
        yield from textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
