"""Why a configuration was chosen, and what stands in the way of the others, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.assessment import Assessment, Policy
    from voxcast.allocation.choice import Choice, RunLimits
    from voxcast.allocation.machines import Candidate, Cluster


def excluded(assessment: Assessment, candidate: Candidate, image: int, column: int) -> str | None:
    """Say why a candidate cannot be asked for, or None where it can."""
    said = []
    if assessment.too_large[image, column]:
        asked = format_bytes(assessment.memory_bytes[image, column])
        said.append(f"needs {asked} where {format_bytes(candidate.max_memory_bytes)} is allowed")
    if assessment.too_long[image, column]:
        asked = format_seconds(assessment.walltime_s[image, column])
        said.append(f"needs {asked} where {format_seconds(candidate.max_walltime_s)} is allowed")
    if assessment.left_to_others[image, column]:
        said.append("a node without GPUs is enough")
    return ", ".join(said) or None


def why(
    choice: Choice,
    assessment: Assessment,
    candidates: Sequence[Candidate],
    cluster: Cluster,
    policy: Policy,
    limits: RunLimits,
    image: int = 0,
) -> str:
    """Say why this was chosen for an image, or why nothing was and what is nearest."""
    column = int(choice.chosen[image])
    aim = _aim(cluster, policy, limits)
    if column >= 0:
        count = int(choice.qualified[image])
        return f"{aim}, of {count} that {'qualify' if count > 1 else 'qualifies'}"
    column = int(choice.nearest[image])
    if column < 0:
        reasons = [
            f"{own.label} {excluded(assessment, own, image, n)}"
            for n, own in enumerate(candidates)
        ]
        return f"no configuration fits: {'; '.join(reasons)}"
    bound_s = assessment.turnaround_bound_s[image, column]
    usd = assessment.usd_bound[image, column]
    return (
        f"nothing is {_limits(policy, limits)}; nearest is {candidates[column].label} "
        f"with {format_seconds(bound_s)} and {usd:.2g} USD"
    )


def _aim(cluster: Cluster, policy: Policy, limits: RunLimits) -> str:
    cheapest = "the fewest core-hours" if cluster.free else "the cheapest"
    if limits.deadline_s is not None and limits.budget_usd is None:
        return f"{cheapest} that is {_limits(policy, limits)}"
    if limits.budget_usd is not None and limits.deadline_s is None:
        return f"the fastest that is {_limits(policy, limits)}"
    if policy.hour_in_core_hours == 0:
        aim = cheapest
    else:
        worth = f"{policy.hour_in_core_hours:g} core-hours"
        if not cluster.free:
            worth += f" ({policy.hour_in_core_hours * cluster.usd_per_core_hour:.2g} USD)"
        aim = f"the least cost with an hour until it is done counted as {worth}"
    return aim if limits.deadline_s is None else f"{aim}, {_limits(policy, limits)}"


def _limits(policy: Policy, limits: RunLimits) -> str:
    """Say what the limits ask for; waiting is an expectation and no bound."""
    said = []
    if limits.deadline_s is not None:
        said.append(f"done in {format_seconds(limits.deadline_s)}, waiting included,")
    if limits.budget_usd is not None:
        said.append(f"within {limits.budget_usd:g} USD if all of the request is used,")
    return f"{' and '.join(said)} at {100 * policy.confidence:g} %"
