"""Stage headline: errors and bounds of every contender, for the question that a user has.

Applications are judged side by side, one process for each core, on the runs that models may learn
from. Predictions of inner folds are cached in ``build/folds``: a stage that was stopped goes on
there.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import pandas as pd

from study import CODE, FOLDS, HISTORY, apps_of, side_by_side, table_to_learn_from
from voxcast.commits import commit_of
from voxcast.errors import exits_cleanly
from voxcast.evaluation.headline import headline
from voxcast.evaluation.recorded_table import reserved_table
from voxcast.files import sha256_of, write_text
from voxcast.models.selection.cross_validation import FoldCache
from voxcast.records import TARGETS

ELSEWHERE = "second_machine"  # a batch that nothing learns from
OUT = Path("results/headline/headline.csv")
MINIMUM_SITTINGS = 3  # on record, for a new one to be judged


@exits_cleanly
def main() -> int:
    """Write ``results/headline/headline.csv``."""
    table = table_to_learn_from()
    declared = {app.name: app.characteristics for app in apps_of([HISTORY / ELSEWHERE])}
    elsewhere = reserved_table(HISTORY / ELSEWHERE, declared)
    by_app = [
        (runs.reset_index(drop=True), elsewhere[elsewhere["app"] == app].reset_index(drop=True))
        for app, runs in table.groupby("app", sort=True)
        if runs["sitting"].nunique() >= MINIMUM_SITTINGS
    ]
    rows = pd.concat(side_by_side(_headline, by_app), ignore_index=True)
    rows = rows.assign(commit=commit_of(Path(), CODE), table_sha256=_rows_sha256(table))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    write_text(OUT, rows.to_csv(index=False, float_format="%.6g"))
    return 0


def _rows_sha256(table: pd.DataFrame) -> str:
    """Return the hash of the runs' keys and measured targets, in any order."""
    rows = table[["cell_key", *TARGETS]].astype(dict.fromkeys(TARGETS, float))
    rows = rows.sort_values("cell_key")
    return sha256_of([[str(key), *(v.hex() for v in values)] for key, *values in rows.to_numpy()])


def _headline(tables: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    runs, elsewhere = (table.dropna(axis="columns", how="all") for table in tables)
    app = runs["app"].iloc[0]

    def say(step: str) -> None:
        print(f"headline: {app}: {step}", file=sys.stderr, flush=True)

    return headline(runs, elsewhere, cache=FoldCache(FOLDS), on_step=say)


if __name__ == "__main__":
    sys.exit(main())
