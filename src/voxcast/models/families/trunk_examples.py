"""Generated volumes for the trunk: small volumes, and exact facts on the native ones.

They come from the generator of the cohorts, of seeds that no measured image set has, and cost no
measuring.
"""

from __future__ import annotations

import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxcast.images.characteristics import characteristics
from voxcast.images.network_volume import network_volume, pooled
from voxcast.images.volume import Volume
from voxcast.models.families.trunk import BLOCK
from voxcast.models.families.trunk_files import OTHERS
from voxcast_apps.heads.recipe import draw_recipe, draw_varied_recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from voxcast.images.sources import ImageChoice
    from voxcast_apps.heads.recipe import Recipe


@dataclass(frozen=True)
class Examples:
    """Examples for the trunk.

    Attributes
    ----------
    volumes : ndarray, shape (n,)
        Small volumes.
    masks : ndarray of uint8, shape (n, p / 2, p / 2, p / 2)
        Share of the mask in each block of cells, 0 to 255.
    shares : ndarray, shape (n,)
        Share of the mask in the native grid.
    others : ndarray, shape (n, len(OTHERS))
        Characteristics that are not sizes.
    """

    volumes: np.ndarray
    masks: np.ndarray
    shares: np.ndarray
    others: np.ndarray

    def part(self, rows: np.ndarray) -> Examples:
        """Return some of the examples, by position."""
        return Examples(self.volumes[rows], self.masks[rows], self.shares[rows], self.others[rows])


def recipes_of(choice: ImageChoice) -> Iterator[Recipe]:
    """Yield the recipes of a generated image set."""
    draw = draw_varied_recipe if choice.kind == "varied_cohort" else draw_recipe
    sizes = choice.sizes.checked()
    return (draw(choice.seed, index, sizes) for index in range(1, choice.subjects + 1))


def examples_of(recipes: Iterable[Recipe], points: int) -> Examples:
    """Return the examples of recipes; those whose volume fails its check are left out.

    Each volume is written as a file and read as any other, so that nothing differs in use.
    """
    from voxcast_apps.heads.rendering import render

    examples = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "volume.nii"
        for recipe in recipes:
            rendered = render(recipe)
            if rendered.problem is None:
                _save(rendered.array, rendered.affine, path)
                examples.append(_example(path, points))
    return joined(examples)


def joined(parts: Iterable[Examples]) -> Examples:
    """Return several sets of examples as one."""
    columns = zip(*(astuple(part) for part in parts), strict=True)
    return Examples(*(np.concatenate(column) for column in columns))


def _save(array: np.ndarray, affine: np.ndarray, path: Path) -> None:
    import nibabel

    nibabel.save(nibabel.Nifti1Image(array, affine), path)


def _example(path: Path, points: int) -> Examples:
    contents = Volume.open(path).read()
    numbers = characteristics(contents)
    mask = pooled(contents.foreground.coarse, contents.coarse, points // BLOCK)
    return Examples(
        network_volume(contents, points)[None],
        np.rint(255 * mask[None]).astype(np.uint8),
        np.array([numbers["foreground_fraction"]]),
        np.array([[numbers[name] for name in OTHERS]]),
    )
