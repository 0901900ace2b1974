"""A study of the recorded history: what a model can tell, put to the test; results/studies."""

import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from voxcast.cli.campaign import Campaign
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.files import write_json
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.studies import ablation, replayed_requests, scales, second_batch, splits, transfer
from voxcast.studies.recorded_table import network_volumes, recorded_table, spent_in

HISTORY = Path("data/history")
LEARNED = "reference"
ASKED = {"second_batch": "second", "real": "real"}
CATALOGUE = Path("data/campaigns/reference/catalogue")
FOLDS = Path("build/folds")
OUT = Path("results/studies")
STUDIES = ("splits", "scales", "transfer", "second_batch", "real", "ablation", "per_image")


@exits_cleanly
def main() -> int:
    """Write ``results/studies/NAME.json``."""
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in STUDIES:
        raise ConfigError("names no study", name or "study.py", f"one of {', '.join(STUDIES)}")
    bar = tqdm(desc=name, unit="step", disable=None)

    def on_step(what: str) -> None:
        bar.set_postfix_str(what)
        bar.update()

    write_json(OUT / f"{name}.json", _found(name, on_step))
    return 0


def _found(name: str, on_step: Any) -> dict[str, Any]:
    if name in ASKED:
        table = recorded_table([HISTORY / LEARNED, HISTORY / ASKED[name]])
        return second_batch.study(table, LEARNED, ASKED[name], on_step=on_step)
    table = recorded_table([HISTORY / LEARNED])
    if name == "ablation":
        import numpy as np

        Campaign(LEARNED, []).make_images()  # unless they are there
        pictured = (table["volume_id"] != "").to_numpy()
        small = network_volumes(table[pictured], [CATALOGUE])
        volumes = np.zeros((len(table), *small.shape[1:]), small.dtype)
        volumes[pictured] = small
        return ablation.study(table, volumes, cache=FoldCache(FOLDS), on_step=on_step)
    if name == "splits":
        epochs_s = spent_in([HISTORY / LEARNED], "epoch")
        return splits.study(table, epochs_s=epochs_s, on_step=on_step)
    others: dict[str, Any] = {
        "scales": scales,
        "transfer": transfer,
        "per_image": replayed_requests,
    }
    found: dict[str, Any] = others[name].study(table, on_step=on_step)
    return found


if __name__ == "__main__":
    sys.exit(main())
