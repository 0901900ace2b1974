"""CPU time as a sum over phases, each by what drives it; memory by a ridge on sizes.

The seconds of a phase are a constant and a power of each of its sizes, times powers of its
parameters and a factor by CPUs. Coefficients are not negative, and errors count relatively.
The cost of a small volume is then the sum of the constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ModelError
from voxcast.models.families import regressors
from voxcast.models.families.formulas import Constant, Exponentials, LogSum, PhaseTime, formula_of
from voxcast.models.families.regressors import TabularRegressor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.features.phase_labels import PhaseLabels
    from voxcast.models.families.formulas import Formula

# Columns by driver, the first that the matrix has: one that is constant, or equivalent to
# another, is not in it, and from the header alone nothing is known of the mask.
_WORKING = ("header.log_working_voxels", "header.log_voxels")
SIZES = {
    "grid": ("header.log_voxels", "header.log_working_voxels"),
    "working": _WORKING,
    "mask": ("content.log_foreground_voxels", *_WORKING),
}
CPUS = "allocation.log2_cpus"
POWER_RANGE = (0.6, 1.6)  # of a size
PARAMETER_RANGE = (0.0, 1.5)
CPUS_RANGE = (-0.7, 0.7)
SMALLEST = 1e-6  # of a parameter, which has a logarithm
RESOLUTION_S = 0.01  # of CPU times; shorter phases are constants
# Assumptions before anything is measured: proportional to a size, within this factor.
POWER_SD, PARAMETER_SD, CPUS_SD = 0.15, 0.5, 0.1
NOISE = 0.1  # relative, of the time of a phase


class PhasesRegressor(TabularRegressor):
    """One formula for CPU time, fitted phase by phase, and a ridge for every other output.

    Parameters
    ----------
    columns : sequence of str
        Names of the matrix's columns.
    labels : PhaseLabels or None
        Shares of CPU time by phase, for the rows that will be fitted.
    cpu : int
        Position of CPU time among the outputs.
    powers : bool
        Whether the powers of sizes are fitted; otherwise times are linear in sizes.
    """

    def __init__(
        self, columns: Sequence[str], labels: PhaseLabels | None, cpu: int, *, powers: bool
    ) -> None:
        super().__init__(None)
        self.columns = tuple(columns)
        self.labels = labels
        self.cpu = cpu
        self.powers = powers

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> PhasesRegressor:
        """Fit all outputs; runs without labels count for the sum only."""
        if self.labels is None or not self.labels.is_known.any():
            raise ModelError("the runs have no CPU times by phase", "phases")
        self.floor_, self.ceiling_ = y.min(axis=0) - np.log(2), y.max(axis=0)
        self.formulas_ = tuple(
            self._phases(x, output) if n == self.cpu else self._other(x, output)
            for n, output in enumerate(y.T)
        )
        return self

    def _other(self, x: np.ndarray, output: np.ndarray) -> Formula:
        """Return a ridge on the sizes themselves, by relative errors."""
        logs = np.array([n for n, c in enumerate(self.columns) if ".log_" in c], int)
        sizes = Exponentials(logs, Constant(0.0)).columns(x)
        weights = np.exp(-2.0 * output)
        ridge = regressors.ridge({"alpha": 0.1}, 0, self.columns).fit(
            sizes, np.exp(output), ridge__sample_weight=weights / weights.mean()
        )
        lowest = float(np.exp(output.min()) / 2)
        return LogSum((Exponentials(logs, formula_of(ridge)),), 0.0, lowest)

    def _phases(self, x: np.ndarray, output: np.ndarray) -> LogSum:
        labels = self.labels
        assert labels is not None  # noqa: S101  # checked by `fit`
        is_known = labels.is_known
        seconds = labels.shares[is_known] * np.exp(output[is_known])[:, None]
        terms = tuple(
            self._phase(x[is_known], seconds[:, n], labels.drivers.get(name, ()))
            for n, name in enumerate(labels.names)
        )
        sums = LogSum(terms, 0.0, RESOLUTION_S)
        # Medians of phases do not add up to the median of their sum.
        return LogSum(terms, float(np.median(output - sums.predict(x))), RESOLUTION_S)

    def _phase(self, x: np.ndarray, seconds: np.ndarray, drivers: Sequence[str]) -> PhaseTime:
        """Fit the time of a phase by robust least squares of its logarithm."""
        from scipy.optimize import least_squares

        sizes, parameters = self._columns_of(drivers)
        cpus = self._present((CPUS,))
        observed = np.log(np.maximum(seconds, RESOLUTION_S))
        middle_s = float(np.exp(np.median(observed)))
        n_sizes, n_parameters = len(sizes), len(parameters)
        size_logs = np.median(x[:, sizes], axis=0)
        parameter_logs = np.log(np.maximum(np.median(x[:, parameters], axis=0), SMALLEST))
        fixed = not (self.powers and sizes)
        bounds = [
            *[(0.0, 10.0)] * (1 + n_sizes),
            (1.0 - 1e-9, 1.0 + 1e-9) if fixed else POWER_RANGE,
            *[PARAMETER_RANGE] * n_parameters,
            *[CPUS_RANGE] * len(cpus),
        ]
        usual = np.array([*[1 / (1 + n_sizes)] * (1 + n_sizes), 1.0, *[1.0] * n_parameters,
                          *[0.0] * len(cpus)])  # fmt: skip
        first = 1 + n_sizes  # of the exponents
        sd = [POWER_SD, *[PARAMETER_SD] * n_parameters, *[CPUS_SD] * len(cpus)]

        def phase_time(theta: np.ndarray) -> PhaseTime:
            return PhaseTime(
                middle_s * float(theta[0]),
                np.array(sizes, int),
                size_logs,
                middle_s * theta[1:first],
                float(theta[first]),
                np.array(parameters, int),
                parameter_logs,
                theta[first + 1 : first + 1 + n_parameters],
                np.array(cpus, int),
                theta[first + 1 + n_parameters :],
            )

        def residuals(theta: np.ndarray) -> np.ndarray:
            predicted = np.log(np.maximum(phase_time(theta).predict(x), 1e-9 * middle_s))
            priors = (theta[first:] - usual[first:]) / sd
            return np.concatenate([(predicted - observed) / NOISE, priors])

        low, high = np.array(bounds).T
        return phase_time(least_squares(residuals, usual, bounds=(low, high), loss="soft_l1").x)

    def _columns_of(self, drivers: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the columns of a phase's sizes, and of its parameters."""
        sizes: list[int] = []
        parameters: list[int] = []
        for driver in drivers:
            own_columns = (f"content.log_{driver}", f"content.{driver}")
            sizes += self._present(SIZES.get(driver, own_columns))[:1]
            parameters += self._present((f"parameter.{driver}",))
        return list(dict.fromkeys(sizes)), parameters

    def _present(self, names: Sequence[str]) -> list[int]:
        return [self.columns.index(name) for name in names if name in self.columns]
