"""A recommendation as people and machines read it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.assessment import Assessment, Policy, Predictions, Waste, assess, waste
from voxcast.allocation.reasons import excluded, why
from voxcast.allocation.recommend import Choice, Limits, choose, choose_shared
from voxcast.quantities import format_bytes, format_seconds, slurm_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from voxcast.allocation.machines import Candidate, Cluster

_PREDICTED = (
    "runtime_s_median", "runtime_s_upper", "peak_rss_bytes_median", "peak_rss_bytes_upper",
)  # fmt: skip


@dataclass(frozen=True)
class Answered:
    """An image with the champion's answer for each candidate."""

    image: str
    answers: list[dict[str, Any]]


@dataclass(frozen=True)
class Side:
    """One way to ask: per image, or one request for all."""

    assessment: Assessment
    choice: Choice


@dataclass(frozen=True)
class Advice:
    """All that a recommendation rests on; arrays are of images by candidates."""

    cluster: Cluster
    policy: Policy
    limits: Limits
    candidates: list[Candidate]
    answered: list[Answered]
    predictions: Predictions
    each: Side
    shared: Side

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        policy: Policy,
        limits: Limits,
        candidates: list[Candidate],
        answered: list[Answered],
    ) -> Advice:
        """Choose for each image and for all together."""
        columns = (
            np.array([[own[name] for own in one.answers] for one in answered], dtype=float)
            for name in _PREDICTED
        )
        predictions = Predictions(*columns).checked(len(candidates))
        rate = cluster.usd_per_core_hour
        sides = []
        for shared, rule in ((False, choose), (True, choose_shared)):
            found = assess(predictions, candidates, cluster, policy, shared=shared)
            sides.append(Side(found, rule(found, policy, limits, rate)))
        return cls(cluster, policy, limits, candidates, answered, predictions, *sides)

    def unfit(self) -> Iterator[tuple[str, str]]:
        """Give the images that no configuration fits, with the reason."""
        choice = self.each.choice
        for n, one in enumerate(self.answered):
            if choice.chosen[n] < 0 and choice.nearest[n] < 0:
                yield one.image, self.why(n)

    def why(self, image: int) -> str:
        """Say why this was chosen for an image."""
        return self._why(self.each, image)

    def why_shared(self) -> str:
        """Say why this was chosen for all."""
        return self._why(self.shared, 0)

    def _why(self, side: Side, image: int) -> str:
        return why(
            side.choice, side.assessment, self.candidates, self.cluster, self.policy, self.limits,
            image,
        )  # fmt: skip

    def totals(self, side: Side, chosen: NDArray[np.intp]) -> dict[str, float]:
        """Return cost and waste of the chosen candidates, summed over images that have one."""
        at = np.flatnonzero(chosen >= 0), chosen[chosen >= 0]
        lost: Waste = waste(self.predictions, side.assessment, self.candidates, chosen)
        free = self.cluster.free
        cpus = np.array([own.cpus for own in self.candidates])[at[1]]
        return {
            "usd": 0.0 if free else float(side.assessment.cost[at].sum()),
            "usd_bound": 0.0 if free else float(side.assessment.cost_bound[at].sum()),
            "core_h": float((cpus * self.predictions.runtime_median_s[at]).sum() / 3600),
            "waste_core_h": lost.core_h,
            "waste_gb_h": lost.gb_h,
        }

    def all_shared(self) -> NDArray[np.intp]:
        """Return the shared choice, once for each image."""
        return np.repeat(self.shared.choice.chosen, len(self.answered))


def as_json(advice: Advice) -> dict[str, Any]:
    """Return the whole recommendation as plain values."""
    content: dict[str, Any] = {
        "cluster": advice.cluster.name,
        "policy": asdict(advice.policy) | {"risk": advice.policy.risk},
        "limits": asdict(advice.limits),
        "images": [_image_json(advice, n) for n in range(len(advice.answered))],
    }
    if len(advice.answered) > 1:
        shared = int(advice.shared.choice.chosen[0])
        nearest = int(advice.shared.choice.nearest[0])
        content["array"] = {
            "per_image": advice.totals(advice.each, advice.each.choice.chosen),
            "shared": advice.totals(advice.shared, advice.all_shared()) if shared >= 0 else None,
            "chosen": _request_json(advice, advice.shared.assessment, 0, shared),
            "nearest": _request_json(advice, advice.shared.assessment, 0, nearest),
            "why": advice.why_shared(),
            "calibrated": shared >= 0
            and all(bool(one.answers[shared]["calibrated"]) for one in advice.answered),
        }
    return content


def _image_json(advice: Advice, image: int) -> dict[str, Any]:
    one, choice = advice.answered[image], advice.each.choice
    rows = [_row_json(advice, image, n) for n in range(len(advice.candidates))]
    chosen, nearest = int(choice.chosen[image]), int(choice.nearest[image])
    return {
        "image": one.image,
        "app": one.answers[0]["app"],
        "family": one.answers[0]["family"],
        "input_level": one.answers[0]["input_level"],
        "chosen": rows[chosen] if chosen >= 0 else None,
        "nearest": rows[nearest] if nearest >= 0 else None,
        "why": advice.why(image),
        "configurations": rows,
    }


def _row_json(advice: Advice, image: int, column: int) -> dict[str, Any]:
    found, answer = advice.each.assessment, advice.answered[image].answers[column]
    at = image, column
    candidate, free = advice.candidates[column], advice.cluster.free
    cost = {
        "usd": 0.0 if free else float(found.cost[at]),
        "usd_bound": 0.0 if free else float(found.cost_bound[at]),
        "usd_expected": 0.0 if free else float(found.cost_expected[at]),
        "core_h": candidate.cpus * float(answer["runtime_s_median"]) / 3600,
    }
    times = ("turnaround_s", "turnaround_bound_s", "turnaround_expected_s")
    return {
        **(_request_json(advice, found, image, column) or {}),
        **{name: float(answer[name]) for name in _PREDICTED},
        **{name: float(getattr(found, name)[at]) for name in times},
        **cost,
        # What nobody has calibrated has a risk that nobody knows.
        "risk": advice.policy.risk if answer["calibrated"] else None,
        "calibrated": bool(answer["calibrated"]),
        "out_of_range": str(answer["out_of_range"]).split(),
        "pareto": bool(found.pareto[at]),
        "excluded": excluded(found, candidate, image, column),
    }


def _request_json(
    advice: Advice, found: Assessment, image: int, column: int
) -> dict[str, Any] | None:
    if column < 0:
        return None
    candidate = advice.candidates[column]
    return {
        "node_type": candidate.node.name,
        "partition": candidate.partition.name,
        "device": candidate.configuration.device,
        "cpus": candidate.cpus,
        "gpus": candidate.gpus,
        "walltime_s": float(found.walltime_s[image, column]),
        "memory_bytes": int(found.memory_bytes[image, column]),
        "wait_s": float(found.wait_s[image, column]),
    }


def show(advice: Advice) -> None:
    """Print all configurations of one image, or a line for each of many and for all together."""
    several = len(advice.answered) > 1
    for image, one in enumerate(advice.answered):
        column = int(advice.each.choice.chosen[image])
        name = os.path.basename(one.image)  # noqa: PTH119
        ask = "nothing" if column < 0 else _request(advice, advice.each.assessment, image, column)
        print(f"{name}: {one.answers[0]['app']} on {advice.cluster.name}: ask for {ask}")
        if not several:
            print(f"  because it is {advice.why(image)}" if column >= 0
                  else f"  {advice.why(image)}")  # fmt: skip
            _show_rows(advice, image)
        elif column < 0:
            print(f"  {advice.why(image)}")
        for remark in remarks(one.answers[max(column, 0)], advice.policy.confidence):
            print(f"  {remark}")
    if several:
        _show_array(advice)


def _show_rows(advice: Advice, image: int) -> None:
    found, policy, answers = advice.each.assessment, advice.policy, advice.answered[image].answers
    bound, unit = f"{100 * policy.confidence:g} %", "core-h" if found.free else "USD"
    print(f"  {'':32}{'runtime 50 %':>13}{bound:>13}{'memory':>10}{'done in':>13}"
          f"{unit:>10}{'at most':>10}")  # fmt: skip
    for n, own in enumerate(advice.candidates):
        at, answer = (image, n), answers[n]
        mark = "*" if n == advice.each.choice.chosen[image] else "+" if found.pareto[at] else " "
        print(
            f"{mark} {own.label:32}{format_seconds(answer['runtime_s_median']):>13}"
            f"{format_seconds(answer['runtime_s_upper']):>13}"
            f"{format_bytes(found.memory_bytes[at]):>10}"
            f"{format_seconds(found.turnaround_s[at]):>13}"
            f"{found.cost[at]:>10.2g}{found.cost_bound[at]:>10.2g}"
        )
        if reason := excluded(found, own, image, n):
            print(f"    cannot be asked for: {reason}")
    print("  * to take, + no other is both cheaper and sooner done")
    if all(answer["calibrated"] for answer in answers):
        print(f"  at most {100 * policy.risk:.3g} % of such requests are too small")
    if not advice.cluster.queues and not found.free:
        print("  how long a job waits is not known here and counts as nothing; see --waiting")


def _show_array(advice: Advice) -> None:
    free = advice.cluster.free
    each = advice.totals(advice.each, advice.each.choice.chosen)
    print(f"one by one: {_totals(each, free=free)}")
    column = int(advice.shared.choice.chosen[0])
    if column < 0:
        print(f"as one array job: {advice.why_shared()}")
        return
    ask = _request(advice, advice.shared.assessment, 0, column)
    print(f"as one array job: ask for {ask} each")
    print(f"  {_totals(advice.totals(advice.shared, advice.all_shared()), free=free)}")
    print(f"  because it is {advice.why_shared()}")


def _totals(of: dict[str, float], *, free: bool) -> str:
    cost = f"{of['usd']:.2g} USD, at most {of['usd_bound']:.2g}, "
    return (
        f"{'' if free else cost}{of['core_h']:.2g} core-hours; asked for and not used "
        f"{of['waste_core_h']:.2g} core-hours, {of['waste_gb_h']:.2g} GB-hours"
    )


def _request(advice: Advice, found: Assessment, image: int, column: int) -> str:
    return (
        f"{advice.candidates[column].label}, {slurm_clock(found.walltime_s[image, column])}, "
        f"{format_bytes(found.memory_bytes[image, column])}"
    )


def remarks(answer: dict[str, Any], level: float) -> list[str]:
    """Say what the risk that is stated for an upper bound of ``level`` does not cover."""
    if answer["out_of_range"]:
        return [f"unlike all that was measured in {', '.join(answer['out_of_range'].split())}: "
                "an extrapolation, its risk is not known"]  # fmt: skip
    if not answer["calibrated"]:
        return [f"not calibrated: too few subjects were measured to promise "
                f"{100 * level:g} %"]  # fmt: skip
    return []
