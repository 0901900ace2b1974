"""Results of a pass of the pipeline as sentences, shared by the page and the summary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.analysis.cpu_scaling import CpuComparison, compare_cpus
from voxcast.analysis.model_comparison import compare_models
from voxcast.analysis.noise import RepeatNoise, repeat_noise
from voxcast.analysis.training_runs import training_runs
from voxcast.quantities import counted, format_seconds
from voxcast.report.app_narrative import AppNarrative
from voxcast.report.formatting import percent
from voxcast.report.labels import cpu_label
from voxcast.report.sentences import cpu_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxcast.report.inputs import ReportInputs


@dataclass(frozen=True)
class Narrative:
    """Results that both the page and the summary show, with their sentences.

    Attributes
    ----------
    apps : tuple of AppNarrative
        The results, by application.
    noise : RepeatNoise or None
        Pooled over all repeats of comparable runs; None if no run was repeated undisturbed.
    cpu_comparisons : list of CpuComparison
        Comparisons of numbers of CPUs.
    """

    inputs: ReportInputs
    apps: tuple[AppNarrative, ...]
    noise: RepeatNoise | None
    cpu_comparisons: list[CpuComparison]

    @classmethod
    def of(cls, inputs: ReportInputs) -> Narrative:
        """Compute the results."""
        comparable = inputs.comparable
        pooled = repeat_noise(comparable)
        noise_by_app = {noise.app: noise for noise in repeat_noise(comparable, by=("app",))}
        return cls(
            inputs,
            tuple(
                AppNarrative(
                    app,
                    compare_models(
                        inputs.leaderboard_of(app),
                        inputs.predictions[inputs.predictions["app"] == app],
                        inputs.metrics[app],
                        inputs.receipt_of(app),
                    ),
                    training_runs(inputs.trained_on, app),
                    _floor_percent(noise_by_app.get(app)),
                    inputs.recorded_runs_alone.get(app, {}),
                    inputs.new_days[inputs.new_days["app"] == app],
                )
                for app in inputs.apps
            ),
            pooled[0] if pooled else None,
            compare_cpus(inputs.completed),
        )

    @property
    def floor_percent(self) -> dict[str, float]:
        """The noise floor of all applications together, by target, in percent."""
        return _floor_percent(self.noise)

    def of_each(self, sentence: Callable[[AppNarrative], str]) -> str:
        """Join a sentence of each application that has one, with its name if there are several."""
        several = len(self.apps) > 1
        sentences = [(app.app, sentence(app)) for app in self.apps]
        return "; ".join(f"{name}: " * several + text for name, text in sentences if text)

    def headline(self) -> str:
        """Write the main result as one sentence, or the errors of several applications."""
        if len(self.apps) == 1:
            return self.apps[0].headline()
        errors = ", ".join(f"{app.app} {percent(app.error())} {app.origin()}" for app in self.apps)
        return f"Errors in CPU time: {errors}"

    def champion(self) -> str:
        """Write the best family and the champion of each application."""
        return "; ".join(app.champion() for app in self.apps)

    def cross_validated(self) -> str:
        """Write the cross-validated errors of the winners and of the best baselines."""
        return self.of_each(AppNarrative.cross_validated)

    def tested(self) -> str:
        """Write the errors on unseen subjects, with intervals."""
        return self.of_each(AppNarrative.tested)

    def predicted_before(self) -> str:
        """Write how far the runs measured here lay from what recorded runs alone predict."""
        return self.of_each(AppNarrative.predicted_before)

    def on_new_days(self) -> str:
        """Write the errors on days that were not measured."""
        return self.of_each(AppNarrative.on_new_days)

    def calibration(self) -> str:
        """Write whether the upper bounds are calibrated."""
        return self.of_each(AppNarrative.calibration)

    def measured(self) -> str:
        """Write the number of runs, applications, volumes and allocations."""
        runs, completed = self.inputs.runs, self.inputs.completed
        left = self.inputs.runs_left
        ended = f"; the time ended with {counted(left, 'run')} left" if left else ""
        if completed.empty:
            return f"None of {counted(len(runs), 'run')} completed{ended}"
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
            f"{format_seconds(float(completed['cpu_s'].sum()))} of CPU time{ended}"
        )

    def floor(self) -> str:
        """Write the coefficients of variation of repeats, and how many runs were disturbed."""
        is_noisy = self.inputs.comparable["noisy"]
        noisy = int(is_noisy.sum())
        busy = f"{noisy} of {counted(len(is_noisy), 'run')} shared the machine with other work"
        if self.noise is None:
            if not noisy:
                return "unknown, as no run was repeated"
            if noisy == len(is_noisy):
                busy = f"all {counted(noisy, 'run')} shared the machine with other work"
            return f"unknown: {busy}, and no undisturbed run was repeated"
        cv = self.noise.cv
        return (
            f"repeats of one run differ by {percent(cv['cpu_s'].value)} in CPU time and "
            f"{percent(cv['runtime_s'].value)} in wall time (coefficients of variation; "
            f"{counted(self.noise.cells, 'cell')} repeated)"
            + (f"; {busy} and do not count here" if noisy else "")
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


def _floor_percent(noise: RepeatNoise | None) -> dict[str, float]:
    if noise is None:
        return {}
    errors = {target: noise.error_percent(target) for target in noise.cv}
    return {target: error for target, error in errors.items() if math.isfinite(error)}


def _cpus(numbers: list[int]) -> str:
    if numbers == [1]:
        return "1 CPU"
    *leading, last = map(str, numbers)
    return f"{', '.join(leading)} and {last} CPUs" if leading else f"{last} CPUs"
