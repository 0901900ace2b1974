"""Stage tune: search every family for each application; the test side is not read."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
import time
from pathlib import Path

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.log import progress
from voxcast.models.selection.cross_validation import validations
from voxcast.models.selection.leaderboard import (
    Search,
    save_leaderboard,
    save_table,
    save_trials,
)
from voxcast.models.selection.learning import learn

TUNED = Path("data/tune")
LEADERBOARD = Path("results/tune/leaderboard.csv")


@exits_cleanly
def main() -> int:
    """Write data/tune and results/tune."""
    cfg = config.load()
    by_app, leaderboards = validations(Path(), cfg.tune.folds, cfg.tune.seed), {}
    deadline, searched = time.monotonic() + cfg.tune.budget_s, 0
    bar = progress(total=len(by_app) * len(cfg.tune.families), desc="tune", unit="family")
    with bar:
        for number, (app, validation) in enumerate(by_app.items()):
            searches: list[Search] = []

            def on_family(name: str, app: str = app) -> None:
                bar.set_postfix_str(f"{app} {name}")

            def on_search(search: Search, searches: list[Search] = searches) -> None:
                nonlocal searched
                searches.append(search)
                searched += 1
                bar.update()
                if bar.disable:  # not on a terminal, as in `voxcast learn`
                    count = f"{searched} of {bar.total} families"
                    print(f"tune: {count}", file=sys.stderr, flush=True)

            leaderboards[app] = learn(
                validation,
                cfg.tune.families,
                trials=cfg.tune.trials,
                # Time that an application does not use is shared by the next ones.
                budget_s=(deadline - time.monotonic()) / (len(by_app) - number),
                input_levels=("volume", "header"),
                on_family=on_family,
                on_search=on_search,
            )
            keys = validation.table["cell_key"].tolist()
            save_leaderboard(leaderboards[app], keys, TUNED / app)
            save_trials(searches, TUNED / app)
    save_table(leaderboards, LEADERBOARD)
    return 0


if __name__ == "__main__":
    sys.exit(main())
