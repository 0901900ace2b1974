"""Results of a pass of the pipeline as sentences, shared by the page and the summary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.analysis.cpu_scaling import CpuComparison, compare_cpus
from voxcast.analysis.model_comparison import BASELINES, ModelComparison, compare_models
from voxcast.analysis.noise import RepeatNoise, repeat_noise
from voxcast.quantities import format_seconds
from voxcast.report.formatting import counted, percent, percent_interval
from voxcast.report.labels import cpu_label
from voxcast.report.sentences import cpu_verdict

if TYPE_CHECKING:
    from voxcast.report.inputs import ReportInputs


@dataclass(frozen=True)
class Narrative:
    """Results that both the page and the summary show, with their sentences.

    Attributes
    ----------
    models : ModelComparison
        Comparison of the winner with the baselines.
    noise : RepeatNoise or None
        Pooled over all repeats of modelled runs; None if no run was repeated undisturbed.
    cpu_comparisons : list of CpuComparison
        Comparisons of numbers of CPUs.
    """

    inputs: ReportInputs
    models: ModelComparison
    noise: RepeatNoise | None
    cpu_comparisons: list[CpuComparison]

    @classmethod
    def of(cls, inputs: ReportInputs) -> Narrative:
        """Compute the results."""
        pooled = repeat_noise(inputs.modelled)
        return cls(
            inputs,
            compare_models(inputs.leaderboard, inputs.predictions, inputs.metrics, inputs.receipt),
            pooled[0] if pooled else None,
            compare_cpus(inputs.completed),
        )

    @property
    def floor_percent(self) -> dict[str, float]:
        """The noise floor by target, in percent; empty if nothing was repeated.

        It is a mean absolute error, comparable with the errors of models; see
        `RepeatNoise.error_percent`.
        """
        if self.noise is None:
            return {}
        errors = {target: self.noise.error_percent(target) for target in self.noise.cv}
        return {target: error for target, error in errors.items() if math.isfinite(error)}

    def headline(self) -> str:
        """Write the main result as one sentence."""
        m = self.models
        error = m.tested.get(m.winner, {}).get("cpu_s")
        if error is None:
            validated = percent(m.cross_validated[m.winner]["cpu_s"])
            return (
                f"The {m.winner} model has an error of {validated} in CPU time by "
                "cross-validation; it was not tested on unseen subjects"
            )
        text = f"The {m.winner} model has an error of {percent(error.value)} in CPU time"
        if m.winner in BASELINES:
            return (
                f"No model beat the {m.winner} baseline, which has an error of "
                f"{percent(error.value)} in CPU time"
            )
        if m.baseline is None or "cpu_s" not in m.gain:
            return f"{text} on {counted(m.test_subjects, 'unseen subject')}"
        rival = f"the {m.baseline} baseline {percent(m.tested[m.baseline]['cpu_s'].value)}"
        if m.gain["cpu_s"].covers(0):
            subjects = counted(m.test_subjects, "unseen subject")
            return f"{text}, {rival}: {subjects} are too few to decide which is better"
        if m.gain["cpu_s"].value < 0:
            return f"{text} on unseen subjects, {rival}: the baseline did better there"
        return f"{text} on {counted(m.test_subjects, 'unseen subject')}, {rival}"

    def measured(self) -> str:
        """Write the number of runs, applications, volumes and allocations."""
        runs, completed = self.inputs.runs, self.inputs.completed
        if completed.empty:
            return f"None of {counted(len(runs), 'run')} completed"
        allocations = [
            f"{_cpus(sorted(group['cpus'].unique()))} on {device}"
            for device, group in completed.groupby("device", sort=True)
        ]
        apps = ", ".join(sorted(runs["app"].unique()))
        with_image = completed[completed["volume_id"] != ""]
        return (
            f"{len(completed)} of {counted(len(runs), 'run')} completed: {apps} on "
            f"{counted(with_image['volume_id'].nunique(), 'volume')} of "
            f"{counted(with_image['subject'].nunique(), 'subject')}, "
            f"with {' and '.join(allocations)}; "
            f"{format_seconds(float(completed['cpu_s'].sum()))} of CPU time"
        )

    def champion(self) -> str:
        """Write the best family and the champion of the registry."""
        m = self.models
        if m.registered:
            reasons = {"first": "the registry was empty", "better": "better than the former one"}
            reason = reasons.get(m.reason, m.reason)
            return f"{m.winner} is champion, version {m.version} ({reason})"
        registered = f"version {m.version} ({m.champion})"
        if m.champion == m.winner:
            return f"{m.winner} is best again; {registered} stays champion ({m.detail})"
        return (
            f"{m.winner} is best by cross-validation, but {registered} stays champion ({m.detail})"
        )

    def cross_validated(self) -> str:
        """Write the cross-validated errors of the winner and of the best baseline."""
        m = self.models
        error = m.cross_validated[m.winner]["cpu_s"]
        text = f"{m.winner} {percent(error)} in CPU time"
        if m.baseline is not None:
            rival = m.cross_validated[m.baseline]["cpu_s"]
            text += f", the {m.baseline} baseline {percent(rival)}"
            if error > 0:
                text += f" ({rival / error:.1f} times the error)"
        return f"{text}; {counted(m.training_subjects, 'subject')}{self._floor_beside()}"

    def tested(self) -> str:
        """Write the errors on unseen subjects, with intervals."""
        m = self.models
        errors = m.tested.get(m.winner)
        if not errors:
            return "no subject is on the test side, so the error on unseen subjects is unknown"
        text = f"{percent_interval(errors['cpu_s'])} in CPU time"
        if m.baseline is not None and m.baseline in m.tested:
            text += f", {m.baseline} {percent_interval(m.tested[m.baseline]['cpu_s'])}"
        runs = f"{counted(m.test_subjects, 'subject')}, {counted(m.test_runs, 'run')}"
        return f"{text}; {runs}{self._floor_beside()}"

    def _floor_beside(self) -> str:
        floor = self.floor_percent.get("cpu_s")
        return "" if floor is None else f"; noise floor {percent(floor)}"

    def calibration(self) -> str:
        """Write whether the upper bound is calibrated."""
        m = self.models
        bound = percent(100 * m.upper_quantile)
        if m.calibrated:
            return f"calibrated: the upper bound is expected to hold for {bound} of new subjects"
        return (
            f"not calibrated: a {bound} bound needs {m.subjects_needed} training subjects, there "
            f"are {m.training_subjects}; it is the largest residual times a stated factor"
        )

    def floor(self) -> str:
        """Write the coefficients of variation of repeats."""
        if self.noise is None:
            undisturbed = " undisturbed" if self.inputs.modelled["noisy"].any() else ""
            return (
                f"no run was repeated{undisturbed}, so the share of noise in the errors is unknown"
            )
        cv = self.noise.cv
        return (
            f"repeats of one run differ by {percent(cv['cpu_s'].value)} in CPU time and "
            f"{percent(cv['runtime_s'].value)} in wall time (coefficients of variation; "
            f"{counted(self.noise.cells, 'cell')} repeated)"
        )

    def floor_meaning(self) -> str:
        """Write the interpretation of the noise floor; empty without repeats."""
        if self.noise is None or "cpu_s" not in self.floor_percent:
            return ""
        degrees = counted(self.noise.degrees_of_freedom["cpu_s"], "degree")
        return (
            "A model that does not know the momentary speed of the machine cannot have a smaller "
            f"expected error in CPU time than {percent(self.floor_percent['cpu_s'])}. This is "
            f"estimated from these runs only, with {degrees} of freedom"
        )

    def cpu_scaling(self) -> str:
        """Write the effect of more CPUs."""
        if not self.cpu_comparisons:
            return "only one configuration was measured, so there is nothing to compare"
        several = len({cpu_label(comparison) for comparison in self.cpu_comparisons}) > 1
        return "; ".join(
            f"{cpu_label(comparison)}: " * several + cpu_verdict(comparison)
            for comparison in self.cpu_comparisons
        )


def _cpus(numbers: list[int]) -> str:
    if numbers == [1]:
        return "1 CPU"
    *leading, last = map(str, numbers)
    return f"{', '.join(leading)} and {last} CPUs" if leading else f"{last} CPUs"
