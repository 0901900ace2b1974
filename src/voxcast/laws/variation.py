"""How a group of runs varies: moments, quantiles, families, modes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from voxcast.laws.empirical import QuantileInterval, quantile_interval
from voxcast.laws.fits import LEAST_RUNS, Fit, by_aic, rank_fits, tied_by_aic
from voxcast.laws.law import checked_sample
from voxcast.laws.modality import Modality, modality

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

QUANTILES = (0.05, 0.5, 0.9, 0.95)


@dataclass(frozen=True)
class Variation:
    """The variation of a group.

    Attributes
    ----------
    sd : float
        Standard deviation, divided by n - 1; 0 for a single run.
    cv : float
        ``sd / mean``.
    fits : tuple of Fit
        Closest first by Kolmogorov's distance; empty for fewer than 5 runs, or if all are equal.
    """

    n: int
    mean: float
    sd: float
    cv: float
    quantiles: tuple[QuantileInterval, ...]
    fits: tuple[Fit, ...]
    modality: Modality

    @property
    def best_by_ks(self) -> str | None:
        """The family closest to the sample."""
        return self.fits[0].family if self.fits else None

    @property
    def best_by_aic(self) -> str | None:
        """The family with the smallest AIC; `tied` lists all that are close to it."""
        return by_aic(self.fits)[0].family if self.fits else None

    @property
    def tied(self) -> list[str]:
        """Families whose AIC is close to the smallest, the best first."""
        return tied_by_aic(self.fits) if self.fits else []

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values; NaN and infinity become None."""
        content = asdict(self)
        for fit in content["fits"]:
            del fit["law"]
        content |= {"best_by_ks": self.best_by_ks, "best_by_aic": self.best_by_aic}
        content |= {"tied_by_aic": self.tied, "bimodal": self.modality.bimodal}
        plain: dict[str, Any] = _finite(content)
        return plain


def variation(
    values: ArrayLike,
    quantiles: tuple[float, ...] = QUANTILES,
    bootstrap: int = 0,
    seed: int = 0,
) -> Variation:
    """Describe how positive ``values`` vary.

    Parameters
    ----------
    bootstrap : int
        Samples drawn for the bootstrap p-values of the fits; 0 leaves them out.

    Raises
    ------
    TableError
        If there is no value, or one is not positive.
    """
    x = checked_sample(values, 1)
    mean = float(x.mean())
    sd = float(x.std(ddof=1)) if len(x) > 1 else 0.0
    varies = len(x) >= LEAST_RUNS and x[-1] - x[0] > 1e-12 * x[-1]
    return Variation(
        len(x),
        mean,
        sd,
        sd / mean,
        tuple(quantile_interval(x, p) for p in quantiles),
        tuple(rank_fits(x, bootstrap=bootstrap, seed=seed)) if varies else (),
        modality(x),
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    # JSON has neither NaN nor infinity.
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
