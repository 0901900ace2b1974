"""A study of the recorded history, written to results/studies; see `voxcast.studies`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from voxcast.config.project_campaigns import project_campaign
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.files import write_json
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.studies import ablation, replayed_requests, scales, second_batch, splits, transfer
from voxcast.studies.recorded_table import network_volumes, recorded_table, seconds_in_phase

HISTORY = Path("data/history")
TRAIN_BATCH = "reference"
TEST_BATCHES = {"second_batch": "second", "real": "real"}
CATALOGUE = Path("data/campaigns/reference/catalogue")
FOLDS = Path("build/folds")
OUT = Path("results/studies")
STUDIES = ("splits", "scales", "transfer", "second_batch", "real", "ablation", "per_image")


@exits_cleanly
def main() -> int:
    """Write ``results/studies/NAME.json``."""
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in STUDIES:
        raise ConfigError(
            f"unknown study {name!r}", "study.py", f"choose from {', '.join(STUDIES)}"
        )
    bar = tqdm(desc=name, unit="step", disable=None)

    def on_step(step: str) -> None:
        bar.set_postfix_str(step)
        bar.update()

    write_json(OUT / f"{name}.json", _results(name, on_step))
    return 0


def _results(name: str, on_step: Callable[[str], None]) -> dict[str, Any]:
    if name in TEST_BATCHES:
        table = recorded_table([HISTORY / TRAIN_BATCH, HISTORY / TEST_BATCHES[name]])
        return second_batch.study(table, TRAIN_BATCH, TEST_BATCHES[name], on_step=on_step)
    table = recorded_table([HISTORY / TRAIN_BATCH])
    if name == "splits":
        epochs_s = seconds_in_phase([HISTORY / TRAIN_BATCH], "epoch")
        return splits.study(table, epochs_s=epochs_s, on_step=on_step)
    if name == "scales":
        return scales.study(table, on_step=on_step)
    if name == "transfer":
        return transfer.study(table, on_step=on_step)
    if name == "per_image":
        return replayed_requests.study(table, on_step=on_step)
    import numpy as np

    project_campaign(TRAIN_BATCH).prepare_images()  # does nothing if they exist
    has_volume = (table["volume_id"] != "").to_numpy()
    small = network_volumes(table[has_volume], [CATALOGUE])
    volumes = np.zeros((len(table), *small.shape[1:]), small.dtype)
    volumes[has_volume] = small
    return ablation.study(table, volumes, cache=FoldCache(FOLDS), on_step=on_step)


if __name__ == "__main__":
    sys.exit(main())
