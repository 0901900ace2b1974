"""Stage tile_weights of pipelines/dvc.yaml: train and evaluate the network of `tile_segment`.

Training and evaluation use different generated heads. No image set has these seeds, so no volume
of a campaign was used for training. The weights in use are in the package and were written by this
script. New weights differ slightly, as registration and threads vary from run to run. To use them,
copy them into the package; the applications then get another version.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from voxcast.errors import exits_cleanly
from voxcast.files import write_json
from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.rendering import write_labelled_heads
from voxcast_apps.tiles import training
from voxcast_apps.tiles.network import save_weights

TRAINED, HELD_OUT = (70_001, 16), (70_002, 8)  # seed, heads
STEPS = 450
SIZES = Sizes(voxels=(300_000, 900_000, 1_500_000), axis_voxels=(40, 256))
OUT = Path("data/tile_weights/weights.pt")
RESULT = Path("results/tile_weights/dice.json")


@exits_cleanly
def main() -> int:
    """Write weights and their Dice overlaps."""
    with tempfile.TemporaryDirectory() as scratch:
        training_heads, test_heads = (
            write_labelled_heads(Path(scratch, str(seed)), seed=seed, subjects=n, sizes=SIZES)
            for seed, n in (TRAINED, HELD_OUT)
        )
        volumes, labels = zip(*(training.example(*pair) for pair in training_heads), strict=True)
        save_weights(training.train(volumes, labels, steps=STEPS, seed=1), OUT)
        rows = training.evaluate(test_heads, OUT)
    mean = {t: round(float(np.mean([row[t] for row in rows])), 4) for t in ("csf", "gm", "wm")}
    write_json(
        RESULT, {"mean": mean, "scans": rows, "trained_on": len(training_heads), "steps": STEPS}
    )
    print(f"Dice on {len(rows)} unseen heads: {mean}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
