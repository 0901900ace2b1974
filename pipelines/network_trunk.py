"""Stage network_trunk of pipelines/dvc.yaml: pretrain the network on generated volumes.

No run is measured on these volumes, and no other image set has their seeds. The trunk in use is in
the package and was written by this script; to use another, copy both files there.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import nibabel
import numpy as np

from voxcast import config
from voxcast.commits import commit_of
from voxcast.errors import exits_cleanly
from voxcast.files import write_json
from voxcast.images.network_volume import POINTS
from voxcast.log import progress
from voxcast.models.families.network import write_trunk
from voxcast.models.families.trunk import Examples, accuracy, example_of, joined, pretrain
from voxcast_apps.heads.recipe import Recipe, draw_recipe, draw_varied_recipe
from voxcast_apps.heads.rendering import render

IMAGES = ("cohort_trunk", "varied_trunk")  # of conf/images
EPOCHS, SEED = 24, 1
HELD_OUT = 8  # every eighth
CODE = ("src/voxcast/images", "src/voxcast/models/families")
OUT = Path("data/network_trunk")
RESULT = Path("results/network_trunk/accuracy.json")


@exits_cleanly
def main() -> int:
    """Write the trunk, and how well it estimates what it was not trained on."""
    choices = {name: _images(name) for name in IMAGES}
    recipes = [recipe for choice in choices.values() for recipe in recipes_of(choice)]
    with_progress = progress(recipes, desc="generating heads", unit="volume")
    examples = examples_of(with_progress, POINTS)
    held_out = np.arange(len(examples.shares)) % HELD_OUT == 0
    training = examples.part(~held_out)
    trunk = pretrain(training, epochs=EPOCHS, seed=SEED, on_epoch=_print_epoch)
    facts = {
        "images": {
            name: {"kind": choice.kind, "seed": choice.seed, "subjects": choice.subjects}
            for name, choice in choices.items()
        },
        "generator_versions": sorted({recipe.generator_version for recipe in recipes}),
        "trained_on": len(training.shares), "epochs": EPOCHS, "seed": SEED, "points": POINTS,
        "commit": commit_of(Path(), CODE),
        "errors_percent": accuracy(trunk, examples.part(held_out)),
    }  # fmt: skip
    write_trunk(OUT, trunk.weights(), facts)
    write_json(RESULT, facts)
    print(f"errors of the mask's voxels, in percent: {facts['errors_percent']}", file=sys.stderr)
    return 0


def recipes_of(choice: config.ImageChoice) -> Iterator[Recipe]:
    """Yield the recipes of a generated image set."""
    draw = draw_varied_recipe if choice.kind == "varied_cohort" else draw_recipe
    sizes = choice.sizes.checked()
    return (draw(choice.seed, index, sizes) for index in range(1, choice.subjects + 1))


def examples_of(recipes: Iterable[Recipe], points: int) -> Examples:
    """Return the examples of recipes; those whose volume fails its check are left out.

    Each volume is written as a file and read as any other, so that nothing differs in use.
    """
    examples = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "volume.nii"
        for recipe in recipes:
            rendered = render(recipe)
            if rendered.problem is None:
                nibabel.save(nibabel.Nifti1Image(rendered.array, rendered.affine), path)
                examples.append(example_of(path, points))
    return joined(examples)


def _print_epoch(epoch: int, loss: float) -> None:
    print(f"pass {epoch} of {EPOCHS}: loss {loss:.3f}", file=sys.stderr, flush=True)


def _images(name: str) -> config.ImageChoice:
    with tempfile.TemporaryDirectory() as folder:
        composed = Path(folder) / config.PARAMS_FILE
        config.compose(composed, [f"images={name}"])
        return config.load(composed).images


if __name__ == "__main__":
    sys.exit(main())
