"""The law of images: 1 + voxels + voxels of the mask, none negative, times a power of the CPUs.

Its few coefficients can be read: seconds of a start, and seconds for each million of voxels. It is
the baseline that knows the size and the CPUs, and it continues out of range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.families.formulas import Law

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = ("header.megavoxels", "content.foreground_megavoxels")
CPUS = "allocation.log2_cpus"
ROUNDS = 10  # of weights, which have settled by then
OUTLIER = 2.0  # robust standard deviations, beyond which an error counts less (Huber)
SMALLEST_SD = 1e-3  # relative; below it all runs count alike
SMALLEST_SHARE = 1e-3  # of the measured value, where all sizes are zero


class AdditiveLaw:
    """The law, fitted by non-negative least squares of relative errors; outliers count less.

    Sizes and CPUs that the columns lack are not in it: without any it is a constant.

    Parameters
    ----------
    columns : sequence of str
        Names of the matrix's columns.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.sizes, self.cpus = (
            np.array([n for n, name in enumerate(columns) if name in names], int)
            for names in (SIZES, (CPUS,))
        )

    def fit(self, x: np.ndarray, y: np.ndarray) -> AdditiveLaw:
        """Fit sizes and the power of the CPUs in turns."""
        from scipy.optimize import nnls

        sizes = np.column_stack([np.ones(len(x)), x[:, self.sizes]])
        cpus = np.column_stack([np.ones(len(x)), x[:, self.cpus]])
        roots, powers = np.ones(len(x)), np.zeros(cpus.shape[1])
        for _ in range(ROUNDS):
            shares = sizes * (np.exp(cpus @ powers) / y)[:, None]
            coefficients, _ = nnls(roots[:, None] * shares, roots)
            ratios = -np.log(np.maximum(sizes @ coefficients / y, SMALLEST_SHARE))
            powers = np.linalg.lstsq(roots[:, None] * cpus, roots * ratios)[0]
            errors = np.abs(ratios - cpus @ powers)
            sd = max(1.4826 * float(np.median(errors)), SMALLEST_SD)
            roots = np.sqrt(1 / np.maximum(errors / (OUTLIER * sd), 1.0))
        constant, *weights = coefficients * np.exp(powers[0])
        self.law_ = Law(float(constant), self.sizes, np.array(weights), self.cpus, powers[1:])
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the values of the law."""
        return self.law_.predict(x)
