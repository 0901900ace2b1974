"""Results of a pass of the pipeline, and of each application, as sentences; and their limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.analysis.devices import CpuComparison, compare_cpus
from voxcast.analysis.model_comparison import BASELINES, compare_models
from voxcast.analysis.noise import RepeatNoise, repeat_noise
from voxcast.analysis.runs_on_record import training_runs
from voxcast.features.rows import MIN_SUBJECTS
from voxcast.laws.intervals import Interval
from voxcast.models.selection.promotion_rule import REASONS
from voxcast.quantities import counted, format_seconds
from voxcast.report.wording import (
    BASELINE_TITLES,
    TITLES,
    cpu_label,
    cpu_verdict,
    percent,
    percent_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from voxcast.analysis.model_comparison import ModelComparison
    from voxcast.analysis.runs_on_record import TrainingRuns
    from voxcast.report.inputs import ReportInputs

FEW_SUBJECTS = 20  # unseen; with fewer the page warns that they are few
LOADED_SHARE = 1 / 3  # of disturbed runs, from which on a set counts as measured under load
HEADLINE_SUBJECTS = 5  # unseen; with fewer their error is less certain than cross-validation


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
        comparable, predictions = inputs.comparable, inputs.predictions
        pooled = repeat_noise(comparable)
        noise_by_app = {noise.app: noise for noise in repeat_noise(comparable, by=("app",))}
        apps = tuple(
            AppNarrative(
                app,
                compare_models(
                    inputs.leaderboard_of(app), predictions[predictions["app"] == app],
                    inputs.metrics[app], inputs.receipt_of(app),
                ),
                training_runs(inputs.trained_on, app),
                _floor_percent(noise_by_app.get(app)),
                inputs.new_days[inputs.new_days["app"] == app],
            )
            for app in inputs.apps
        )  # fmt: skip
        return cls(inputs, apps, pooled[0] if pooled else None, compare_cpus(inputs.completed))

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
        """Write how much repeats of a run differ, and how many runs were disturbed."""
        is_noisy = self.inputs.comparable["noisy"]
        noisy, count = int(is_noisy.sum()), counted(len(is_noisy), "run")
        busy = f"{noisy} of {count} shared the machine with other work"
        if self.noise is None:
            busy = f"{busy}, and no undisturbed run was repeated"
            return f"unknown: {busy}" if noisy else "unknown, as no run was repeated"
        cv = self.noise.cv
        return (
            f"repeats of one run differ by {percent(cv['cpu_s'].value)} in CPU time and "
            f"{percent(cv['runtime_s'].value)} in wall time (coefficients of variation; "
            f"{counted(self.noise.cells, 'cell')} repeated): a model cannot be more exact"
            + (f"; {busy} and do not count here" if noisy else "")
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

    def cautions(self) -> list[str]:
        """Return the limits of the measured runs of all applications."""
        inputs, lines = self.inputs, []
        runs = inputs.runs
        if self.noise is None:
            lines.append(f"The noise floor is {self.floor()}.")
        censored = runs[runs["outcome"] != "completed"]["outcome"].value_counts()
        if len(censored):
            kinds = ", ".join(f"{n} {str(k).replace('_', ' ')}" for k, n in censored.items())
            lines.append(f"Runs that did not complete: {kinds}. Stopped runs are lower bounds.")
        if noisy := int(runs["noisy"].sum()):
            lines.append(
                f"{counted(noisy, 'run')} of {len(runs)} shared the machine with other work, "
                "which lengthens wall time."
            )
        problems = inputs.catalogue["problem"].dropna().value_counts().head(10)
        lines += [f"{counted(n, 'volume')} not used: {reason}" for reason, n in problems.items()]
        if runs["memory_method"].nunique() > 1:
            methods = ", ".join(sorted(map(str, runs["memory_method"].unique())))
            lines.append(f"Peak memory was measured by more than one method ({methods}).")
        return lines + [f"Not measured: {note.rstrip('.')}." for note in inputs.notes]


def _floor_percent(noise: RepeatNoise | None) -> dict[str, float]:
    if noise is None:
        return {}
    errors = {target: noise.error_percent(target) for target in noise.cv}
    return {target: error for target, error in errors.items() if math.isfinite(error)}


def _cpus(numbers: list[int]) -> str:
    *leading, last = map(str, numbers)
    text = f"{', '.join(leading)} and {last}" if leading else last
    return f"{text} CPU{'s' if numbers != [1] else ''}"


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

    @property
    def _is_of_unseen(self) -> bool:
        m = self.models
        return m.winner in m.tested and m.test_subjects >= HEADLINE_SUBJECTS

    def error(self, family: str | None = None) -> float:
        """Return the error of the headline in percent: CPU time, by the winner if None."""
        m, name = self.models, family or self.models.winner
        if self._is_of_unseen:
            return m.tested[name]["cpu_s"].value
        return m.cross_validated[name]["cpu_s"]

    def origin(self) -> str:
        """Write which subjects the error of the headline is of."""
        m = self.models
        if self._is_of_unseen:
            return f"on {counted(m.test_subjects, 'unseen subject')}"
        return f"by cross-validation over {counted(m.training_subjects, 'subject')}"

    def headline(self) -> str:
        """Write the main result as one sentence.

        It is of unseen subjects if there are at least `HEADLINE_SUBJECTS`, and of cross-validation
        otherwise.
        """
        m = self.models
        result = f"an error of {percent(self.error())} in CPU time {self.origin()}"
        untested = "" if m.tested else "; no subject was kept apart to test it"
        if m.winner in BASELINES:
            text = f"No model beat the {BASELINE_TITLES[m.winner]}, which has {result}"
            return text + untested
        text = f"The {m.winner} model has {result}"
        if m.baseline is not None:
            text += f", the {BASELINE_TITLES[m.baseline]} {percent(self.error(m.baseline))}"
            gain = m.gain.get("cpu_s") if self._is_of_unseen else None
            if gain is not None and gain.covers(0):
                text += ": too few subjects to decide which is better"
            elif gain is not None and gain.value < 0:
                text += ": the baseline did better there"
        return text + untested

    def learned_from(self) -> str:
        """Write which runs on record the models were learned from, and how many were disturbed."""
        t = self.training
        sources = [counted(t.image_sets, "image set")] if t.image_sets else []
        if t.batches:
            sources.append(f"the recorded batches {', '.join(t.batches)}")
        origin = f", from {' and '.join(sources)}" if sources else ""
        disturbed = f"{t.noisy} of them ({percent(100 * t.noisy_share)})" if t.noisy else "none"
        return (
            f"learned from {counted(t.runs, 'run')} of {counted(t.subjects, 'subject')} on "
            f"record{origin}; {disturbed} shared the machine with other work"
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

    def on_new_subjects(self) -> str:
        """Write the errors of the winner and of the best baseline, on unseen subjects if any."""
        m = self.models
        rival = "" if m.baseline is None else f", the {BASELINE_TITLES[m.baseline]} "
        texts = []
        if m.winner in m.tested:
            subjects = counted(m.test_subjects, "unseen subject")
            unbounded = "" if m.tested[m.winner]["cpu_s"].bounded else ", too few for an interval"
            text = f"{percent_interval(m.tested[m.winner]['cpu_s'])} of CPU time"
            if m.baseline in m.tested:
                text += rival + percent_interval(m.tested[str(m.baseline)]["cpu_s"])
            texts.append(f"{text} ({subjects}, {counted(m.test_runs, 'run')}{unbounded})")
        text = f"{percent(m.cross_validated[m.winner]['cpu_s'])} of CPU time"
        if m.baseline is not None:
            text += rival + percent(m.cross_validated[m.baseline]["cpu_s"])
        subjects = counted(m.training_subjects, "subject")
        texts.append(f"{text} by cross-validation over {subjects}")
        if not m.tested:
            texts.append(f"none was kept apart to test on, which takes {MIN_SUBJECTS} subjects")
        if m.training_subjects == 1:
            texts.append("runs of one subject, which says nothing of other subjects")
        if floor := self.floor_percent.get("cpu_s"):
            texts.append(f"noise floor {percent(floor)}")
        return "; ".join(texts)

    def on_new_days(self) -> str:
        """Write the errors of CPU time on days that were not measured, and why they are larger."""
        if self.new_days.empty:
            return "unknown: too few days or subjects were measured to hold some out"
        rows = self.new_days[self.new_days["target"] == "cpu_s"].sort_values("local_runs")
        texts = []
        for row in rows.to_dict("records"):
            error = percent_interval(Interval(row["mape"], row["low"], row["high"], 0))
            after = f"after {counted(int(row['local_runs']), 'run')} on that day "
            texts.append(f"{after if row['local_runs'] else ''}{error}")
        first = rows.iloc[0]
        return (
            f"{', '.join(texts)} in CPU time, as the speed of a machine differs from day to day; "
            f"{counted(int(first['subjects']), 'subject')} on "
            f"{counted(int(first['days']), 'day')}, each left out of the fit but not of the "
            "choice of the family"
        )

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
            f"not calibrated: a {bound} bound needs {needed}, of which there "
            f"{'is' if m.training_subjects == 1 else 'are'} {m.training_subjects}; it is the "
            "largest residual times a stated factor"
        )

    def cautions(self, leaderboard: pd.DataFrame) -> list[str]:
        """Return the limits of the models, the most serious first."""
        m, lines = self.models, []
        if not m.tested:
            lines.append(
                "No subject was kept apart: each is predicted by models that have not seen it, "
                "but the family was chosen by the same errors."
            )
        elif m.test_subjects < FEW_SUBJECTS:
            lines.append(
                f"Only {counted(m.test_subjects, 'unseen subject')}: another sample of subjects "
                "would give other errors."
            )
        if not m.calibrated:
            lines.append(f"The upper bound is {self.calibration()}.")
        if self.training.noisy_share >= LOADED_SHARE:
            share = percent(100 * self.training.noisy_share)
            lines.append(f"The runs were measured under load: {share} shared the machine.")
        for target, gain in m.gain.items():
            rival = BASELINE_TITLES[str(m.baseline)]
            points = f"{TITLES[target]} ({_points(gain)})"
            if gain.bounded and gain.covers(0):
                lines.append(
                    f"{m.winner} and the {rival} do not differ significantly in {points}."
                )
            elif gain.bounded and gain.value < 0:
                lines.append(f"On unseen subjects the {rival} beat {m.winner} in {points}.")
        best = min(m.cross_validated, key=lambda name: m.cross_validated[name]["cpu_s"])
        if best != m.winner:
            lines.append(
                f"By CPU time alone {best} has the smaller cross-validated error "
                f"({percent(m.cross_validated[best]['cpu_s'])}); the choice counts memory too."
            )
        if m.voxels_gain is not None and m.voxels_gain.bounded and m.voxels_gain.covers(0):
            lines.append(
                "Reading the voxels gave no significant gain over the header alone in CPU time "
                f"({_points(m.voxels_gain)})."
            )
        if cut_short := leaderboard.query("cut_short == True")["family"].tolist():
            names = ", ".join(cut_short)
            lines.append(f"The time limit of tuning was reached before all trials of {names}.")
        return lines


def _points(gain: Interval) -> str:
    return f"gain of {gain.value:+.1f} points, {gain.low:+.1f} to {gain.high:+.1f}"
