"""A recommendation: the candidate to request for each image.

It names what was not read of an image and the unknown speed of a machine. Speeds are
multiples of the speed of the reference machine, on which most runs were made, see
`voxcast.models.speed`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.offers import HardLimits, Offers, Policy, Predictions, offers
from voxcast.quantities import counted

if TYPE_CHECKING:
    from voxcast.allocation.site import Candidate, Cluster

PREDICTED_COLUMNS = (
    "runtime_s_median", "runtime_s_upper", "peak_rss_bytes_median", "peak_rss_bytes_upper",
)  # fmt: skip
MEASURE = "measure it with `voxcast measure --host` there"


@dataclass(frozen=True)
class ImagePredictions:
    """An image with the row of predictions for each candidate."""

    image: str
    by_candidate: list[dict[str, Any]]


@dataclass(frozen=True)
class Recommendation:
    """The offers for each image, and the choice among them.

    Attributes
    ----------
    host_classes : sequence of str
        Machines on which the training runs of the model were measured, see
        `voxcast.measure.host.host_class`.
    measured : collection of (device, CPUs, GPUs), optional
        Allocations that were measured, on any machine; None where they are not known.
    parameters : mapping
        Parameters of the application that differ from its defaults.
    """

    offers: Offers
    images: list[ImagePredictions]
    host_classes: Sequence[str] = ()
    measured: Collection[tuple[str, int, int]] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        policy: Policy,
        limits: HardLimits,
        candidates: list[Candidate],
        images: list[ImagePredictions],
        host_classes: Sequence[str] = (),
        measured: Collection[tuple[str, int, int]] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Recommendation:
        """Choose for each image; see the class for the parameters."""
        arrays = (
            np.array([[row[name] for row in image.by_candidate] for image in images], float)
            for name in PREDICTED_COLUMNS
        )
        per_image = offers(Predictions(*arrays), candidates, cluster, policy, limits)
        return cls(per_image, images, host_classes, measured, parameters or {})

    @property
    def cluster(self) -> Cluster:
        """The site."""
        return self.offers.cluster

    def without_request(self) -> Iterator[tuple[str, str]]:
        """Yield the images that no candidate fits within the limits, with the reason."""
        for n, image in enumerate(self.images):
            if self.offers.choice.chosen[n] < 0:
                yield image.image, self.offers.why(n)

    def unmeasured(self, column: int) -> bool:
        """Whether the allocation of a candidate is known never to have been measured."""
        configuration = self.offers.candidates[column].configuration
        allocation = (configuration.device, configuration.cpus, configuration.gpus)
        return self.measured is not None and allocation not in self.measured

    def machine(self) -> str:
        """Return the speed of each node type, or the machines whose times these are."""
        machines = " and of ".join(self.host_classes) or "the machine that was measured"
        speeds = {
            f"{candidate.node.name} {_speed(prediction)}"
            for candidate, prediction in zip(
                self.offers.candidates, self.images[0].by_candidate, strict=True
            )
            if prediction.get("host")
        }
        if speeds:
            return f"speeds relative to most runs on record: {'; '.join(sorted(speeds))}"
        nodes = [candidate.node for candidate in self.offers.candidates]
        unknown = sorted({node.name for node in nodes if node.host_class is None})
        elsewhere = "this machine" if self.cluster.is_this_machine else ", ".join(unknown)
        differ = f"; {elsewhere} may be faster or slower" if unknown else ""
        return f"times are those of {machines}{differ}"

    def caveats(self, image: int) -> list[str]:
        """Return missing inputs of an image, and why its request does not hold as stated."""
        column = int(self.offers.choice.chosen[image])
        prediction = self.images[image].by_candidate[max(column, 0)]
        lines = [*input_lines(prediction), *caveats(prediction, self.offers.policy.confidence)]
        if column >= 0 and self.unmeasured(column):
            label = self.offers.candidates[column].configuration.label
            lines.append(f"{label}: never measured, so that its time and risk are a guess")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the recommendation as an object that `json` can write."""
        return {
            "cluster": self.cluster.name,
            "walltime_step_s": self.cluster.walltime_step_s,
            "policy": asdict(self.offers.policy) | {"risk": self.offers.policy.risk},
            "limits": asdict(self.offers.limits),
            "host_classes": None if self.measured is None else list(self.host_classes),
            "machine": self.machine(),
            "parameters": dict(self.parameters),
            "images": [self._image_json(n) for n in range(len(self.images))],
        }

    def _image_json(self, image: int) -> dict[str, Any]:
        choice = self.offers.choice
        prediction = self.images[image].by_candidate[0]
        rows = [self._row_json(image, n) for n in range(len(self.offers.candidates))]
        chosen, nearest = int(choice.chosen[image]), int(choice.nearest[image])
        return {
            "image": self.images[image].image,
            "app": prediction["app"],
            "family": prediction["family"],
            "input_level": prediction["input_level"],
            "chosen": rows[chosen] if chosen >= 0 else None,
            "nearest": rows[nearest] if nearest >= 0 else None,
            "why": self.offers.why(image),
            "configurations": rows,
        }

    def _row_json(self, image: int, column: int) -> dict[str, Any]:
        offered, at = self.offers, (image, column)
        prediction, candidate = self.images[image].by_candidate[column], offered.candidates[column]
        predicted, held = offered.predictions, self.cluster.counted_bytes
        free = self.cluster.free
        return {
            "node_type": candidate.node.name,
            "partition": candidate.partition.name,
            "device": candidate.configuration.device,
            "cpus": candidate.cpus,
            "gpus": candidate.gpus,
            "walltime_s": float(offered.walltime_s[at]),
            "memory_bytes": int(offered.memory_bytes[at]),
            "host_class": candidate.node.host_class,
            "wait_s": float(offered.wait_s[at]),
            "runtime_s_median": float(predicted.runtime_median_s[at]),
            "runtime_s_upper": float(predicted.runtime_upper_s[at]),
            "peak_rss_bytes_median": float(held(predicted.memory_median_bytes[at])),
            "peak_rss_bytes_upper": float(held(predicted.memory_upper_bytes[at])),
            "turnaround_s": float(offered.turnaround_s[at]),
            "turnaround_bound_s": float(offered.turnaround_bound_s[at]),
            "turnaround_expected_s": float(offered.turnaround_expected_s[at]),
            "usd": 0.0 if free else float(offered.cost[at]),
            "usd_bound": 0.0 if free else float(offered.cost_bound[at]),
            "usd_expected": 0.0 if free else float(offered.cost_expected[at]),
            "core_h": candidate.cpus * float(predicted.runtime_median_s[at]) / 3600,
            # Without calibration the risk is unknown.
            "risk": self.offers.policy.risk if prediction["calibrated"] else None,
            "calibrated": bool(prediction["calibrated"]),
            "out_of_range": str(prediction["out_of_range"]).split(),
            "out_of_range_reason": str(prediction.get("out_of_range_reason", "")),
            "measured": None if self.measured is None else not self.unmeasured(column),
            "pareto": bool(offered.pareto[at]),
            "excluded": offered.excluded(image, column),
        }


def input_lines(prediction: Mapping[str, Any]) -> list[str]:
    """Return the inputs of the model that were missing for the image; empty if it had them all."""
    if prediction.get("input_level") == "header":
        return ["from the header alone: voxels were not read, so the bounds are wider"]
    return []


def caveats(prediction: Mapping[str, Any], quantile: float) -> list[str]:
    """Return why the upper bound at ``quantile`` does not hold as stated; empty where it does.

    Each is a line of its own, so that a line that several configurations share is listed once.
    """
    if prediction["out_of_range"]:
        names = ", ".join(prediction["out_of_range"].split())
        reason = prediction.get("out_of_range_reason") or names
        phrases = (f"out of range: {phrase}" for phrase in reason.split("; "))
        return [*phrases, "extrapolated, so the risk is unknown"]
    if prediction["calibrated"]:
        return []
    lines = machine_caveats(prediction)
    bound, missing = f"{100 * quantile:g} % bound", int(prediction.get("missing_subjects", 0))
    if missing:
        needed = f"too few subjects were measured for a {bound}; it needs {missing} more"
        until = (
            "until then the bound is the largest error that was seen, with a margin, at least 10 %"
        )
        if prediction.get("measured_subjects") == 1:
            until = (
                "one subject tells nothing about others: the bound is twice the prediction, or "
                "more where errors between its own runs were large"
            )
        lines += [f"not calibrated: {needed}", until]
    return lines or [f"not calibrated: what was measured does not support a {bound}"]


def machine_line(prediction: Mapping[str, Any]) -> str:
    """Return the machine of a prediction; empty where the model does not distinguish machines.

    Examples
    --------
    >>> answer = {"host": "3f2a", "host_runs": 9, "host_known": True, "speed_lower": 0.91,
    ...           "speed_median": 0.94, "speed_upper": 0.97}
    >>> machine_line(answer)
    'for machine 3f2a: speed 0.94 of the reference (0.91 to 0.97, 9 runs)'
    >>> machine_line({**answer, "speed_basis": "reading"})
    'for machine 3f2a: speed 0.94 of the reference (0.91 to 0.97, 9 runs, as it is just now)'
    """
    host = prediction.get("host")
    return f"for machine {host}: speed {_speed(prediction)}" if host else ""


def machine_caveats(prediction: Mapping[str, Any]) -> list[str]:
    """Return how uncertain the machine's speed is, and the command that measures it."""
    if prediction.get("host_known", True):
        return []
    then = MEASURE if int(prediction["host_runs"]) else f"check the name, or {MEASURE}"
    speed = f"the speed of {prediction['host']} is {_speed(prediction)}"
    return [f"not calibrated: {speed}, so the bounds are wider; {then}"]


def _speed(prediction: Mapping[str, Any]) -> str:
    low, median, high = (prediction[f"speed_{end}"] for end in ("lower", "median", "upper"))
    runs = counted(int(prediction["host_runs"]), "run")
    now = ", as it is just now" if prediction.get("speed_basis") == "reading" else ""
    return f"{median:.2f} of the reference ({low:.2f} to {high:.2f}, {runs}{now})"
