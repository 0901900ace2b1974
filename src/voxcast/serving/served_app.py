"""An application as a registered model serves it: what predictions need, and its promotion.

Fields that this release does not know are left out, so a record of a later release can be read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from voxcast.errors import ModelError, UnlearnedError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import Configuration, as_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

# Facts that the list of versions shows for each application.
SUMMARY = (
    "family", "reason", "calibrated", "subjects", "runs", "cv_objective", "promoted_at",
)  # fmt: skip


@dataclass(frozen=True)
class Promotion:
    """A forecaster's recipe, its training data, and why it was promoted.

    Attributes
    ----------
    family, params
        The recipe, see `voxcast.models.selection.fitting`.
    subjects, runs : int
        Size of its training table; `noisy_runs` of the runs were disturbed.
    reason, detail : str
        See `voxcast.models.selection.promotion_rule.Decision`.
    promoted_at : str
        Time in ISO 8601.
    calibrated : bool
        Whether the bounds at `upper_quantile` are calibrated.
    cv_objective : float
        Error by cross-validation on its own training table.
    table_sha256 : str
        Hash of the training table's file.
    app_version : str
        Version of the application that was measured.
    from_version : str or None
        Version of the registered model that it replaced.
    evidence : dict
        How it was judged: ``cross_validation``, ``risk_at_upper_quantile`` and ``comparison`` of
        the receipt; ``errors_percent`` out of fold and ``noise_floor_percent`` of repeats, with
        intervals; ``training``, its image sets and dates; ``software``. Empty where a bundle does
        not have it.
    """

    family: str
    params: dict[str, Any]
    subjects: int
    runs: int
    noisy_runs: int
    reason: str
    detail: str
    promoted_at: str
    calibrated: bool
    upper_quantile: float
    cv_objective: float
    table_sha256: str
    app_version: str
    from_version: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Return the facts that the list of versions shows."""
        return {name: getattr(self, name) for name in SUMMARY}


@dataclass(frozen=True)
class ServedApp:
    """Facts of an application that its forecaster needs to predict without the project.

    Attributes
    ----------
    name : str
        Name of the application.
    parameters : dict
        Default parameters.
    configurations : list of Configuration
        The allocations that were measured.
    coarse_points, network_points : int
        Grid sizes, see `voxcast.images.volume`.
    forecaster_sha256 : str
        Hash of the forecaster's folder, checked when it is read.
    promotion : Promotion
        The forecaster's recipe and why it was promoted.
    host_classes : tuple of str
        Machines on which the runs were measured, see `voxcast.measure.host.host_class`; empty
        where a bundle does not have them.
    measured : tuple of (device, CPUs, GPUs)
        Allocations of the runs; empty where a bundle does not have them.
    characteristics : tuple of str
        Characteristics that its model sees; all, where a bundle does not list them.
    trained_on_sha256 : str
        Hash of the list of the runs that it learned from, checked when it is read; empty where a
        bundle does not have it.
    """

    name: str
    parameters: dict[str, Any]
    configurations: list[Configuration]
    coarse_points: int
    network_points: int
    forecaster_sha256: str
    promotion: Promotion
    host_classes: tuple[str, ...] = ()
    measured: tuple[tuple[str, int, int], ...] = ()
    characteristics: tuple[str, ...] = tuple(CHARACTERISTICS)
    trained_on_sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form, without the name."""
        content = asdict(self) | {"configurations": [as_fields(c) for c in self.configurations]}
        del content["name"]
        return content

    @classmethod
    def from_json(cls, name: str, content: dict[str, Any]) -> ServedApp:
        """Read what `to_json` returned.

        Raises
        ------
        ValueError, LookupError, TypeError, AttributeError, ArithmeticError
            If a field is missing, empty, or of another type.
        """
        names = ("device", "cpus", "gpus")
        configurations = [{k: c[k] for k in names} for c in content["configurations"]]
        facts = {**content, "name": name, "configurations": configurations}
        served: ServedApp = _adapter().validate_python(facts)
        if not configurations:
            raise ValueError("no configurations")
        return served


@cache
def _adapter() -> TypeAdapter[ServedApp]:
    return TypeAdapter(ServedApp)


def app_among(names: Sequence[str], name: str | None) -> str:
    """Return the name of an application of a model; None stands for the only one.

    Raises
    ------
    UnlearnedError
        If the model lacks the application.
    ModelError
        If none is named and there are several.

    Examples
    --------
    >>> app_among(["segment"], None)
    'segment'
    """
    listed = ", ".join(names)
    if name is None and len(names) > 1:
        problem = f"the model has several applications: {listed}"
        raise ModelError(problem, "app", "name one (--app)")
    app = names[0] if name is None and names else name
    if app is None or app not in names:
        raise UnlearnedError(f"unknown application; the model has {listed or 'none'}", app)
    return app
