"""Reasons in words: why a configuration was chosen, and why others are excluded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.quantities import counted, format_seconds, slurm_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.assessment import Assessment, Policy
    from voxcast.allocation.choice import Choice, HardLimits
    from voxcast.allocation.site import Candidate, Cluster


def excluded(assessment: Assessment, candidate: Candidate, image: int, column: int) -> str | None:
    """Return why a candidate cannot be requested, or None if it can."""
    reasons = []
    if assessment.too_large[image, column]:
        needed = slurm_memory(assessment.memory_bytes[image, column])
        limit = f"{int(candidate.max_memory_bytes // 2**20)}M"
        reasons.append(f"needs --mem={needed} where {limit} is allowed")
    if assessment.too_long[image, column]:
        needed = format_seconds(assessment.walltime_s[image, column])
        limit = format_seconds(candidate.max_walltime_s)
        reasons.append(f"needs {needed} where {limit} is allowed")
    if assessment.wastes_gpus[image, column]:
        reasons.append("a node without GPUs is enough")
    return ", ".join(reasons) or None


def why(
    choice: Choice,
    assessment: Assessment,
    candidates: Sequence[Candidate],
    cluster: Cluster,
    policy: Policy,
    limits: HardLimits,
    image: int = 0,
) -> str:
    """Return why the choice was made for an image, or why there is none and what is nearest."""
    column = int(choice.chosen[image])
    aim = _aim(cluster, policy, limits)
    if column >= 0:
        count = int(choice.qualified[image])
        verb = "qualifies" if count == 1 else "qualify"
        return f"{aim}, of {counted(count, 'configuration')} that {verb}"
    column = int(choice.nearest[image])
    if column < 0:
        reasons = [
            f"{candidate.label} {excluded(assessment, candidate, image, n)}"
            for n, candidate in enumerate(candidates)
        ]
        return f"no configuration fits: {'; '.join(reasons)}"
    return (
        f"no configuration is {_limits(policy, limits)}; nearest is {candidates[column].label}: "
        f"{_overruns(assessment, limits, image, column)}"
    )


def _overruns(assessment: Assessment, limits: HardLimits, image: int, column: int) -> str:
    """Return what a candidate takes at the bound, and by how much it exceeds which limit."""
    bound_s = float(assessment.turnaround_bound_s[image, column])
    usd = float(assessment.usd_bound[image, column])
    texts = []
    if limits.deadline_s is not None:
        texts.append(format_seconds(bound_s))
        if bound_s > limits.deadline_s:
            texts[-1] += f", {format_seconds(bound_s - limits.deadline_s)} too long"
    if limits.budget_usd is not None:
        texts.append(f"{usd:.3g} USD")
        if usd > limits.budget_usd:
            texts[-1] += f", {usd - limits.budget_usd:.3g} USD too much"
    return "; ".join(texts)


def _aim(cluster: Cluster, policy: Policy, limits: HardLimits) -> str:
    cheapest = "the fewest core-hours" if cluster.free else "the cheapest"
    if limits.deadline_s is not None and limits.budget_usd is None:
        return f"{cheapest} that is {_limits(policy, limits)}"
    if limits.budget_usd is not None and limits.deadline_s is None:
        return f"the fastest that is {_limits(policy, limits)}"
    if policy.hour_in_core_hours == 0:
        aim = cheapest
    else:
        hour = f"{policy.hour_in_core_hours:g} core-hours"
        if not cluster.free:
            hour += f" ({policy.hour_in_core_hours * cluster.usd_per_core_hour:.2g} USD)"
        aim = f"the lowest cost with an hour of turnaround valued at {hour}"
    return aim if limits.deadline_s is None else f"{aim}, {_limits(policy, limits)}"


def _limits(policy: Policy, limits: HardLimits) -> str:
    """Return the limits in words; waiting is an expectation, not a bound."""
    texts = []
    if limits.deadline_s is not None:
        texts.append(f"done in {format_seconds(limits.deadline_s)}, waiting included,")
    if limits.budget_usd is not None:
        texts.append(f"within {limits.budget_usd:g} USD if the full request is used,")
    return f"{' and '.join(texts)} at {100 * policy.confidence:g} %"
