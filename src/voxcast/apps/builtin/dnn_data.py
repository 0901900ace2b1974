"""The images that `dnn_train` learns from: scikit-learn's digits, or seeded synthetic ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import RunError

if TYPE_CHECKING:
    import numpy.typing as npt

CLASSES = 10
DATASETS = ("digits", "synthetic")
HELD_OUT_SHARE = 0.2  # relative to the training images; of the digits at most this share
_PATTERN = 8  # pixels of an edge before resizing, as in the digits
_NOISE = 1.5  # standard deviation; that of the patterns is 1


@dataclass(frozen=True)
class Images:
    """Images, float32 of shape (n, 1, size, size), and their classes, int64 of shape (n,)."""

    pixels: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int64]


def load(dataset: str, samples: int, image_size: int, seed: int) -> tuple[Images, Images]:
    """Return training and held-out images.

    Parameters
    ----------
    dataset : str
        ``digits``: the 1797 handwritten digits of scikit-learn, a fifth of them held out, the
        others repeated if there are fewer than `samples`. ``synthetic``: one random
        pattern for each class, under noise.
    samples : int
        Number of training images.
    image_size : int
        Pixels of an edge; 8 by 8 pixels are resized to it, linearly.
    seed : int
        Decides order, patterns and noise.

    Raises
    ------
    RunError
        If the digits are requested and scikit-learn is not installed.
    """
    rng = np.random.default_rng(seed)
    held_out = max(1, round(HELD_OUT_SHARE * samples))
    if dataset == "digits":
        return _digits(samples, held_out, image_size, rng)
    patterns = _resized(rng.standard_normal((CLASSES, _PATTERN, _PATTERN)), image_size)
    return _synthetic(patterns, samples, rng), _synthetic(patterns, held_out, rng)


def _digits(
    samples: int, held_out: int, image_size: int, rng: np.random.Generator
) -> tuple[Images, Images]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        then = "install scikit-learn, or use dataset=synthetic"
        raise RunError("needs scikit-learn", "dataset digits", then) from None
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    last = round(HELD_OUT_SHARE * len(order))
    # Held out before anything is repeated: no image is in both sets.
    chosen = (np.resize(order[last:], samples), order[:last][:held_out])
    train, other = (
        Images(
            _resized(digits.images[rows] / 8.0 - 1.0, image_size)[:, None],
            digits.target[rows].astype(np.int64),
        )
        for rows in chosen
    )
    return train, other


def _synthetic(
    patterns: npt.NDArray[np.float32], samples: int, rng: np.random.Generator
) -> Images:
    classes = rng.integers(0, CLASSES, samples)
    pixels = rng.standard_normal((samples, 1, *patterns.shape[1:]), dtype=np.float32)
    pixels *= _NOISE
    pixels += patterns[classes][:, None]
    return Images(pixels, classes.astype(np.int64))


def _resized(images: npt.NDArray[np.floating], size: int) -> npt.NDArray[np.float32]:
    """Return square images, shape (n, m, m), resized linearly to (n, size, size)."""
    pixels = images.shape[-1]
    centres = (np.arange(size) + 0.5) * pixels / size - 0.5
    weights = np.stack([np.interp(centres, np.arange(pixels), row) for row in np.eye(pixels)], 1)
    resized: npt.NDArray[np.float32] = (weights @ images @ weights.T).astype(np.float32)
    return resized
