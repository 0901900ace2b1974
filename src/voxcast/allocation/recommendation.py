"""A recommendation: which candidate to request for each image, and for all as one array job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.assessment import Assessment, Policy, Predictions, assess, waste
from voxcast.allocation.choice import Choice, HardLimits, choose, choose_shared
from voxcast.allocation.machine_speeds import machine_caveats, node_speeds
from voxcast.allocation.reasons import why

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from voxcast.allocation.site import Candidate, Cluster

PREDICTED_COLUMNS = (
    "runtime_s_median", "runtime_s_upper", "peak_rss_bytes_median", "peak_rss_bytes_upper",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """What the model was learned from.

    Attributes
    ----------
    host_classes : tuple of str
        Machines on which runs were measured, see `voxcast.measure.host.host_class`.
    allocations : frozenset of (device, CPUs, GPUs)
        Allocations that were measured.
    """

    host_classes: tuple[str, ...]
    allocations: frozenset[tuple[str, int, int]]

    def includes(self, candidate: Candidate) -> bool:
        """Whether the allocation of a candidate was measured, on any machine."""
        configuration = candidate.configuration
        return (configuration.device, configuration.cpus, configuration.gpus) in self.allocations


@dataclass(frozen=True)
class ImagePredictions:
    """An image with the row of predictions for each candidate."""

    image: str
    by_candidate: list[dict[str, Any]]


@dataclass(frozen=True)
class RequestPlan:
    """Requests per image, or one request shared by all images."""

    assessment: Assessment
    choice: Choice


@dataclass(frozen=True)
class Recommendation:
    """Both plans with their inputs; arrays have the shape (images, candidates)."""

    cluster: Cluster
    policy: Policy
    limits: HardLimits
    candidates: list[Candidate]
    images: list[ImagePredictions]
    predictions: Predictions
    per_image: RequestPlan
    shared: RequestPlan
    measured: Measured | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        policy: Policy,
        limits: HardLimits,
        candidates: list[Candidate],
        images: list[ImagePredictions],
        measured: Measured | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Recommendation:
        """Choose for each image and for all together.

        Parameters
        ----------
        measured : Measured, optional
            What the model was learned from; None where that is not known.
        parameters : mapping, optional
            Parameters of the application that differ from its defaults.
        """
        predictions = Predictions(
            *(
                np.array([[row[name] for row in image.by_candidate] for image in images], float)
                for name in PREDICTED_COLUMNS
            )
        ).checked(len(candidates))
        rate = cluster.usd_per_core_hour
        per_image = assess(predictions, candidates, cluster, policy)
        shared = assess(predictions, candidates, cluster, policy, shared=True)
        return cls(
            cluster, policy, limits, candidates, images, predictions,
            RequestPlan(per_image, choose(per_image, policy, limits, rate)),
            RequestPlan(shared, choose_shared(shared, policy, limits, rate)),
            measured, parameters or {},
        )  # fmt: skip

    def without_request(self) -> Iterator[tuple[str, str]]:
        """Yield the images that no candidate fits within the limits, with the reason."""
        for n, image in enumerate(self.images):
            if self.per_image.choice.chosen[n] < 0:
                yield image.image, self.why(n)

    def unmeasured(self, column: int) -> bool:
        """Whether the allocation of a candidate is known never to have been measured."""
        return self.measured is not None and not self.measured.includes(self.candidates[column])

    def machine(self) -> str:
        """Return the speed of each node type, or the machines whose times these are."""
        names = self.measured.host_classes if self.measured is not None else ()
        machines = " and of ".join(names) or "the machine that was measured"
        if speeds := node_speeds(self.candidates, self.images[0].by_candidate):
            return f"speeds relative to most runs on record: {speeds}"
        unknown = sorted({c.node.name for c in self.candidates if c.node.host_class is None})
        elsewhere = "this machine" if self.cluster.is_this_machine else ", ".join(unknown)
        differ = f"; {elsewhere} may be faster or slower" if unknown else ""
        return f"times are those of {machines}{differ}"

    def why(self, image: int) -> str:
        """Explain the choice for an image."""
        return self._why(self.per_image, image)

    def why_shared(self) -> str:
        """Explain the choice for all images together."""
        return self._why(self.shared, 0)

    def caveats(self, image: int) -> list[str]:
        """Return what of an image was not known, and why its request does not hold as stated."""
        column = int(self.per_image.choice.chosen[image])
        prediction = self.images[image].by_candidate[max(column, 0)]
        lines = [*input_lines(prediction), *caveats(prediction, self.policy.confidence)]
        if column >= 0 and self.unmeasured(column):
            label = self.candidates[column].configuration.label
            lines.append(f"{label}: never measured, so that its time and risk are a guess")
        return lines

    def _why(self, plan: RequestPlan, image: int) -> str:
        return why(
            plan.choice, plan.assessment, self.candidates, self.cluster, self.policy, self.limits,
            image,
        )  # fmt: skip

    def totals_per_image(self) -> dict[str, float]:
        """Return cost and waste of the requests per image, see `totals_shared`."""
        return self._totals(self.per_image, self.per_image.choice.chosen)

    def totals_shared(self) -> dict[str, float] | None:
        """Return cost and waste of one request for all, or None if no candidate qualifies.

        Sums over images; those without a chosen candidate are left out.
        """
        chosen = self.shared.choice.chosen
        if chosen[0] < 0:
            return None
        return self._totals(self.shared, np.repeat(chosen, len(self.images)))

    def _totals(self, plan: RequestPlan, chosen: NDArray[np.intp]) -> dict[str, float]:
        indices = np.flatnonzero(chosen >= 0), chosen[chosen >= 0]
        used_bytes = self.cluster.counted_bytes(self.predictions.memory_median_bytes)
        counted = replace(self.predictions, memory_median_bytes=used_bytes)
        unused = waste(counted, plan.assessment, self.candidates, chosen)
        free = self.cluster.free
        cpus = np.array([candidate.cpus for candidate in self.candidates])[indices[1]]
        return {
            "usd": 0.0 if free else float(plan.assessment.cost[indices].sum()),
            "usd_bound": 0.0 if free else float(plan.assessment.cost_bound[indices].sum()),
            "core_h": float((cpus * self.predictions.runtime_median_s[indices]).sum() / 3600),
            "waste_core_h": unused.core_h,
            "waste_gb_h": unused.gb_h,
        }


def input_lines(prediction: Mapping[str, Any]) -> list[str]:
    """Return what of the image the model did not get to know; empty where it knew all it uses."""
    if missing := prediction.get("missing_characteristics"):  # of a laboratory
        names = ", ".join(missing.split())
        return [
            f"from the header alone: the model needs {names}, which was not computed",
            "declare it in features.characteristics of the project",
        ]
    if prediction.get("input_level") == "header":
        return ["from the header alone: voxels were not read, so the bounds are wider"]
    return []


def caveats(prediction: dict[str, Any], quantile: float) -> list[str]:
    """Return why the upper bound at ``quantile`` does not hold as stated; empty where it does.

    Each is a line of its own, so that those of several configurations can be listed once.
    """
    if prediction["out_of_range"]:
        names = ", ".join(prediction["out_of_range"].split())
        reason = prediction.get("out_of_range_reason") or names  # a server of an earlier release
        phrases = (f"out of range: {phrase}" for phrase in reason.split("; "))
        return [*phrases, "extrapolated, so the risk is unknown"]
    if prediction["calibrated"]:
        return []
    machine = machine_caveats(prediction)
    bound, missing = f"{100 * quantile:g} % bound", int(prediction.get("missing_subjects", 0))
    if not missing and machine:
        return machine
    if not missing:  # a server of an earlier release, or a bound that was cut off
        return [f"not calibrated: what was measured does not support a {bound}"]
    first = (
        f"not calibrated: too few subjects were measured for a {bound}; it needs {missing} more"
    )
    if prediction.get("measured_subjects") == 1:
        return [
            *machine,
            first,
            "one subject tells nothing about others: the bound is twice the prediction, or more "
            "where errors between its own runs were large",
        ]
    return [
        *machine,
        first,
        "until then the bound is the largest error that was seen, with a margin, at least 10 %",
    ]
