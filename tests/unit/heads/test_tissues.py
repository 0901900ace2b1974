import numpy as np
import pytest
import yaml

from voxcast_apps.heads import template
from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.recipe import draw_recipe
from voxcast_apps.heads.rendering import render, tissue_labels

SIZES = Sizes(voxels=(200_000, 250_000, 300_000), axis_voxels=(32, 160))


@pytest.mark.parametrize("index", [1, 2, 3])
def test_labels_lie_where_the_images_tissues_are(index):
    recipe = draw_recipe(21, index, SIZES)
    labels, image = tissue_labels(recipe), render(recipe)
    assert labels.shape == image.array.shape
    assert labels.dtype == np.uint8
    csf, grey, white = (float(np.median(image.array[labels == n])) for n in (1, 2, 3))
    assert csf < grey < white


def test_the_tissues_fill_the_brain_of_the_image():
    recipe = draw_recipe(21, 4, SIZES)
    labels = tissue_labels(recipe)
    voxel_mm3 = float(np.prod(recipe.spacing_mm))
    expected_mm3 = template.brain().volume_mm3 * float(np.prod(recipe.scale))
    assert (labels > 0).sum() * voxel_mm3 == pytest.approx(expected_mm3, rel=0.12)


def test_no_image_set_has_the_seeds_that_the_network_was_trained_with(request):
    root = request.config.rootpath
    script = (root / "pipelines" / "tile_weights.py").read_text()
    used = {70_001, 70_002}
    assert all(f"({seed:_}, " in script for seed in used)
    for path in (root / "conf" / "images").glob("*.yaml"):
        assert yaml.safe_load(path.read_text()).get("seed") not in used
