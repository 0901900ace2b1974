"""Results of a pass of the pipeline, and for each application, as sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.analysis.devices import CpuComparison, compare_cpus
from voxcast.analysis.model_comparison import BASELINES, compare_models
from voxcast.analysis.noise import RepeatNoise, repeat_noise
from voxcast.analysis.runs_on_record import training_runs
from voxcast.features.split import MIN_SUBJECTS
from voxcast.models.selection.promotion_rule import REASONS
from voxcast.quantities import counted, format_seconds
from voxcast.report.sentences import cpu_verdict
from voxcast.report.wording import baseline_title, cpu_label, percent, percent_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from voxcast.analysis.model_comparison import ModelComparison
    from voxcast.analysis.runs_on_record import TrainingRuns
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
            return "no image was measured with several numbers of CPUs on one machine"
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


HEADLINE_SUBJECTS = 5  # unseen; with fewer their error is less certain than cross-validation
SEVERAL = 100  # times another error, from which on the number says no more


@dataclass(frozen=True)
class AppNarrative:
    """The models of an application with their sentences.

    Attributes
    ----------
    app : str
        Name of the application.
    models : ModelComparison
        Comparison of the winner with the baselines.
    training : TrainingRuns
        The runs that the models were learned from.
    floor_percent : dict of str to float
        The noise floor by target, in percent; empty if nothing was repeated. It is a mean absolute
        error, comparable with the errors of models; see `RepeatNoise.error_percent`.
    new_days : DataFrame
        See `voxcast.evaluation.headline.new_day_errors`.
    """

    app: str
    models: ModelComparison
    training: TrainingRuns
    floor_percent: dict[str, float]
    new_days: pd.DataFrame

    def error(self) -> float:
        """Return the winner's error of CPU time in percent, of the headline."""
        m = self.models
        if self._is_of_unseen():
            return m.tested[m.winner]["cpu_s"].value
        return m.cross_validated[m.winner]["cpu_s"]

    def origin(self) -> str:
        """Write which subjects the error of the headline is of."""
        m = self.models
        if self._is_of_unseen():
            return f"on {counted(m.test_subjects, 'unseen subject')}"
        return f"by cross-validation over {counted(m.training_subjects, 'subject')}"

    def _is_of_unseen(self) -> bool:
        m = self.models
        return m.winner in m.tested and m.test_subjects >= HEADLINE_SUBJECTS

    def headline(self) -> str:
        """Write the main result as one sentence.

        It is of unseen subjects if there are at least `HEADLINE_SUBJECTS`, and of cross-validation
        otherwise.
        """
        m = self.models
        if not self._is_of_unseen():
            return self._validated_headline()
        error = percent(self.error())
        subjects = counted(m.test_subjects, "unseen subject")
        if m.winner in BASELINES:
            return (
                f"No model beat the {baseline_title(m.winner)}, which has an error of "
                f"{error} in CPU time on {subjects}"
            )
        text = f"The {m.winner} model has an error of {error} in CPU time"
        if m.baseline is None or "cpu_s" not in m.gain:
            return f"{text} on {subjects}"
        title = baseline_title(m.baseline)
        rival = f"the {title} {percent(m.tested[m.baseline]['cpu_s'].value)}"
        if m.gain["cpu_s"].covers(0):
            return f"{text}, {rival}: {subjects} are too few to decide which is better"
        if m.gain["cpu_s"].value < 0:
            return f"{text} on {subjects}, {rival}: the baseline did better there"
        return f"{text} on {subjects}, {rival}"

    def _validated_headline(self) -> str:
        m = self.models
        error = f"{percent(self.error())} in CPU time {self.origin()}"
        if m.winner in BASELINES:
            text = f"No model beat the {baseline_title(m.winner)}, which has an error of {error}"
        else:
            text = f"The {m.winner} model has an error of {error}"
            if m.baseline is not None:
                rival = percent(m.cross_validated[m.baseline]["cpu_s"])
                text += f", the {baseline_title(m.baseline)} {rival}"
        if not m.tested:
            return f"{text}; no subject was kept apart to test it"
        return text

    def learned_from(self) -> str:
        """Write which runs on record the models were learned from, and how many were disturbed."""
        t = self.training
        sources = [counted(t.image_sets, "image set")] if t.image_sets else []
        if t.batches:
            sources.append(f"the recorded batches {', '.join(t.batches)}")
        origin = f", from {' and '.join(sources)}" if sources else ""
        disturbed = "none of them was disturbed"
        if t.noisy:
            disturbed = (
                f"{t.noisy} of them ({percent(100 * t.noisy_share)}) shared the machine with "
                "other work"
            )
        return (
            f"learned from {counted(t.runs, 'run')} of {counted(t.subjects, 'subject')} on "
            f"record{origin}; {disturbed}"
        )

    def champion(self) -> str:
        """Write the best family and the champion of the application."""
        m = self.models
        if m.registered:
            reason = REASONS.get(m.reason, m.detail)
            return f"{m.winner} is champion of {self.app}, version {m.version} ({reason})"
        stays = f"version {m.version} ({m.champion}) stays champion of {self.app} ({m.detail})"
        if m.champion == m.winner:
            return f"{m.winner} is again the best family; {stays}"
        return f"{m.winner} is best by cross-validation, but {stays}"

    def cross_validated(self) -> str:
        """Write the cross-validated errors of the winner and of the best baseline."""
        m = self.models
        error = m.cross_validated[m.winner]["cpu_s"]
        text = f"{m.winner} {percent(error)} in CPU time"
        if m.baseline is not None:
            rival = m.cross_validated[m.baseline]["cpu_s"]
            text += f", the {baseline_title(m.baseline)} {percent(rival)}"
            if rival > SEVERAL * error:
                text += f" (more than {SEVERAL} times the error)"
            elif error > 0:
                text += f" ({rival / error:.1f} times the error)"
        text = f"{text}; {counted(m.training_subjects, 'subject')}{self._floor_beside()}"
        if m.training_subjects == 1:
            text += "; over the runs of one subject, which says nothing of other subjects"
        return text

    def not_tested(self) -> str:
        """Write why there are no predictions of unseen subjects."""
        return f"No subject was kept apart to test on: that takes {MIN_SUBJECTS} subjects."

    def tested(self) -> str:
        """Write the errors on unseen subjects, with intervals where there are any."""
        m = self.models
        errors = m.tested.get(m.winner)
        if not errors:
            return f"none is kept apart of fewer than {MIN_SUBJECTS} subjects: see the error by CV"
        text = f"{percent_interval(errors['cpu_s'])} in CPU time"
        if m.baseline is not None and m.baseline in m.tested:
            rival = percent_interval(m.tested[m.baseline]["cpu_s"])
            text += f", the {baseline_title(m.baseline)} {rival}"
        runs = f"{counted(m.test_subjects, 'subject')}, {counted(m.test_runs, 'run')}"
        if not errors["cpu_s"].bounded:
            runs += ", too few for an interval"
        return f"{text}; {runs}{self._floor_beside()}"

    def on_new_days(self) -> str:
        """Write the errors of CPU time on days that were not measured."""
        if self.new_days.empty:
            return "unknown: too few days or subjects were measured to hold some out"
        rows = self.new_days[self.new_days["target"] == "cpu_s"]
        texts = []
        for row in rows.sort_values("local_runs").to_dict("records"):
            error = f"{percent(row['mape'])} ({percent(row['low'])} to {percent(row['high'])})"
            after = f"after {counted(int(row['local_runs']), 'run')} on that day "
            texts.append(f"{after if row['local_runs'] else ''}{error}")
        first = rows.iloc[0]
        return (
            f"{', '.join(texts)} in CPU time; {counted(int(first['subjects']), 'subject')} on "
            f"{counted(int(first['days']), 'day')}, each held out"
        )

    def _floor_beside(self) -> str:
        floor = self.floor_percent.get("cpu_s")
        return "" if floor is None else f"; noise floor {percent(floor)}"

    def calibration(self) -> str:
        """Write whether the upper bound is calibrated."""
        m = self.models
        bound = percent(100 * m.upper_quantile)
        if m.calibrated:
            return f"calibrated: the upper bound is expected to hold for {bound} of new subjects"
        needed = f"{m.subjects_needed} training subjects"
        if m.training_subjects >= m.subjects_needed:
            needed += ", and as many more for each with a run that was stopped"
        return (
            f"not calibrated: a {bound} bound needs {needed}; there "
            f"{'is' if m.training_subjects == 1 else 'are'} {m.training_subjects}, and it is the "
            "largest residual times a stated factor"
        )
