"""Results of a pass of the pipeline, and of each application, as sentences; and their limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.analysis.devices import CpuComparison, compare_cpus
from voxcast.analysis.run_groups import RepeatNoise, by_configuration, repeat_noise
from voxcast.features.rows import MIN_SUBJECTS
from voxcast.laws.intervals import Interval, clustered_mean
from voxcast.models.selection.promotion_rule import REASONS
from voxcast.quantities import counted, format_seconds
from voxcast.records import TARGETS
from voxcast.report.wording import (
    BASELINE_TITLES,
    TITLES,
    cpu_label,
    cpu_verdict,
    percent,
    percent_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from voxcast.report.inputs import ReportInputs

FEW_SUBJECTS = 20  # unseen; with fewer the page warns that they are few
LOADED_SHARE = 1 / 3  # of disturbed runs, from which on a set counts as measured under load
HEADLINE_SUBJECTS = 5  # unseen; with fewer their error is less certain than cross-validation


@dataclass(frozen=True)
class Results:
    """Results that both the page and the summary show, with their sentences.

    Attributes
    ----------
    apps : tuple of AppResults
        The results, by application.
    noise : RepeatNoise or None
        Pooled over all repeats of comparable runs; None if no run was repeated undisturbed.
    cpu_comparisons : list of CpuComparison
        Comparisons of numbers of CPUs.
    """

    inputs: ReportInputs
    apps: tuple[AppResults, ...]
    noise: RepeatNoise | None
    cpu_comparisons: list[CpuComparison]

    @classmethod
    def of(cls, inputs: ReportInputs) -> Results:
        """Compute the results."""
        comparable = inputs.comparable
        pooled = repeat_noise(comparable)
        noise_by_app = {noise.app: noise for noise in repeat_noise(comparable, by=("app",))}
        apps = tuple(
            AppResults(
                app, inputs.receipt["apps"][app], inputs.of_app("leaderboard", app),
                inputs.of_app("predictions", app), inputs.of_app("trained_on", app),
                inputs.of_app("new_days", app), noise_by_app.get(app),
            )
            for app in sorted(inputs.receipt["apps"])
        )  # fmt: skip
        return cls(inputs, apps, pooled[0] if pooled else None, compare_cpus(inputs.completed))

    def of_each(self, sentence: Callable[[AppResults], str]) -> str:
        """Join a sentence of each application, with its name if there are several."""
        several = len(self.apps) > 1
        return "; ".join(f"{app.app}: " * several + sentence(app) for app in self.apps)

    def measured(self) -> str:
        """Write the number of runs, applications, volumes and allocations."""
        runs, completed = self.inputs.runs, self.inputs.completed
        left = self.inputs.runs_left
        ended = f"; the time ended with {counted(left, 'run')} left" if left else ""
        if completed.empty:
            return f"None of {counted(len(runs), 'run')} completed{ended}"
        groups = by_configuration(completed)
        allocations = "; ".join(dict.fromkeys(group.configuration.label for group in groups))
        with_image = completed[completed["volume_id"] != ""]
        return (
            f"{len(completed)} of {counted(len(runs), 'run')} completed: "
            f"{', '.join(sorted(runs['app'].unique()))} on "
            f"{counted(with_image['volume_id'].nunique(), 'volume')} of "
            f"{counted(with_image['subject'].nunique(), 'subject')}, with {allocations}; "
            f"{format_seconds(float(completed['cpu_s'].sum()))} of CPU time{ended}"
        )

    def floor(self) -> str:
        """Write how much repeats of a run differ, and how many runs were disturbed."""
        is_noisy = self.inputs.comparable["noisy"]
        busy = f"{int(is_noisy.sum())} of {counted(len(is_noisy), 'run')} shared the machine"
        if self.noise is None:
            return f"unknown, as no undisturbed run was repeated; {busy} with other work"
        cv = self.noise.cv
        return (
            f"repeats of one run differ by {percent(cv['cpu_s'].value)} in CPU time and "
            f"{percent(cv['runtime_s'].value)} in wall time (coefficients of variation; "
            f"{counted(self.noise.cells, 'cell')} repeated): a model cannot be more exact; {busy} "
            "with other work and do not count here"
        )

    def cpu_scaling(self) -> str:
        """Write the effect of more CPUs."""
        verdicts = [f"{cpu_label(c)}: {cpu_verdict(c)}" for c in self.cpu_comparisons]
        none = "no image was measured with several numbers of CPUs on one machine"
        return "; ".join(verdicts) or none

    def cautions(self) -> list[str]:
        """Return the limits of the measured runs of all applications."""
        inputs, runs = self.inputs, self.inputs.runs
        lines = [f"The noise floor is {self.floor()}."] if self.noise is None else []
        censored = runs[runs["outcome"] != "completed"]["outcome"].value_counts()
        if len(censored):
            kinds = ", ".join(f"{n} {str(k).replace('_', ' ')}" for k, n in censored.items())
            lines.append(f"Runs that did not complete: {kinds}. Stopped runs are lower bounds.")
        problems = inputs.catalogue["problem"].dropna().value_counts().head(10)
        lines += [f"{counted(n, 'volume')} not used: {reason}" for reason, n in problems.items()]
        if runs["memory_method"].nunique() > 1:
            methods = ", ".join(sorted(map(str, runs["memory_method"].unique())))
            lines.append(f"Peak memory was measured by more than one method ({methods}).")
        return lines + [f"Not measured: {note.rstrip('.')}." for note in inputs.notes]


@dataclass(frozen=True)
class AppResults:
    """The models of an application with their sentences.

    Attributes
    ----------
    app : str
        Name of the application.
    receipt : dict
        The decision of the registry, as written by register.
    leaderboard, predictions, training, new_days : DataFrame
        Its rows of the tables of `ReportInputs`; ``training`` of ``trained_on``.
    noise : RepeatNoise or None
        Of its repeats; None if nothing was repeated.
    """

    app: str
    receipt: dict[str, Any]
    leaderboard: pd.DataFrame
    predictions: pd.DataFrame
    training: pd.DataFrame
    new_days: pd.DataFrame
    noise: RepeatNoise | None

    @property
    def winner(self) -> str:
        """The best family by cross-validation."""
        return str(self.receipt["challenger"]["family"])

    @property
    def winner_predictions(self) -> pd.DataFrame:
        """The predictions of the best family on the test side."""
        return self.predictions[self.predictions["family"] == self.winner]

    @cached_property
    def cross_validated(self) -> dict[str, dict[str, float]]:
        """Percentage errors (MAPE) by family and target, on the training side."""
        return {
            str(name): {target: float(row[f"cv_{target}_mape"]) for target in TARGETS}
            for name, row in self.leaderboard.set_index("family").iterrows()
        }

    @cached_property
    def tested(self) -> dict[str, dict[str, Interval]]:
        """The same on unseen subjects, with intervals; empty without a test side."""
        return {
            str(name): {target: mean_error(rows, target) for target in TARGETS}
            for name, rows in self.predictions.groupby("family", sort=False)
        }

    @property
    def test_subjects(self) -> int:
        """Number of unseen subjects."""
        return int(self.winner_predictions["subject"].nunique())

    @property
    def baseline(self) -> str | None:
        """The best other baseline by cross-validated error of CPU time."""
        errors = {n: e["cpu_s"] for n, e in self.cross_validated.items() if n in BASELINE_TITLES}
        return min(errors.keys() - {self.winner}, key=lambda name: errors[name], default=None)

    @property
    def floor_percent(self) -> dict[str, float]:
        """The noise floor by target, in percent; comparable with the errors of models."""
        if self.noise is None:
            return {}
        errors = {target: self.noise.error_percent(target) for target in self.noise.cv}
        return {target: error for target, error in errors.items() if math.isfinite(error)}

    def headline(self) -> str:
        """Write the main result: on unseen subjects if there are enough, else across folds."""
        if self.test_subjects >= HEADLINE_SUBJECTS:
            errors = {name: percent(error["cpu_s"].value) for name, error in self.tested.items()}
            origin = f"on {counted(self.test_subjects, 'unseen subject')}"
        else:
            errors = {
                name: percent(error["cpu_s"]) for name, error in self.cross_validated.items()
            }
            origin = f"by cross-validation over {self._training_subjects()}"
        return f"{self.winner} has an error of {self._against_baseline(errors)} {origin}"

    def _training_subjects(self) -> str:
        return counted(int(self.receipt["training"]["subjects"]), "subject")

    def _against_baseline(self, errors: Mapping[str, str]) -> str:
        text = f"{errors[self.winner]} of CPU time"
        if self.baseline is None or self.baseline not in errors:
            return text
        return f"{text}, the {BASELINE_TITLES[self.baseline]} {errors[self.baseline]},"

    def on_new_subjects(self) -> str:
        """Write the errors of the winner and of the best baseline, on unseen subjects if any."""
        texts = [f"no subjects were held out for testing, which takes {MIN_SUBJECTS}"]
        if self.winner in self.tested:
            errors = {n: percent_interval(error["cpu_s"]) for n, error in self.tested.items()}
            subjects = counted(self.test_subjects, "unseen subject")
            runs = counted(len(self.winner_predictions), "run")
            texts = [f"{self._against_baseline(errors)} ({subjects}, {runs})"]
        validated = {name: percent(error["cpu_s"]) for name, error in self.cross_validated.items()}
        error = self._against_baseline(validated)
        texts.append(f"{error} by cross-validation over {self._training_subjects()}")
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

    def learned_from(self) -> str:
        """Write which runs on record the models were learned from, and how many were disturbed."""
        runs = self.training
        image_sets = {*runs.loc[runs["batch"] == "", "image_set"]} - {""}
        batches = ", ".join(sorted({*runs["batch"]} - {""}))
        sources = [counted(len(image_sets), "image set")] if image_sets else []
        sources += [f"the recorded batches {batches}"] if batches else []
        noisy = int(runs["noisy"].sum())
        disturbed = f"{noisy} of them ({percent(100 * noisy / len(runs))})" if noisy else "none"
        return (
            f"learned from {counted(len(runs), 'run')} of "
            f"{counted(int(runs['subject'].nunique()), 'subject')} on record, from "
            f"{' and '.join(sources) or 'no image'}; {disturbed} shared the machine with "
            "other work"
        )

    def champion(self) -> str:
        """Write the best family and the champion of the application."""
        detail, version = self.receipt["detail"], self.receipt.get("version")
        if self.receipt["registered"]:
            reason = REASONS.get(self.receipt["reason"], detail)
            return f"{self.winner} is champion of {self.app}, version {version} ({reason})"
        return (
            f"{self.winner} is best by cross-validation; version {version} "
            f"({self.receipt.get('champion')}) stays champion of {self.app} ({detail})"
        )

    def calibration(self) -> str:
        """Write whether the upper bound is calibrated."""
        quantile = float(self.receipt["upper_quantile"])
        bound = percent(100 * quantile)
        if self.receipt["challenger"]["calibrated"]:
            return f"calibrated: the upper bound is expected to hold for {bound} of new subjects"
        needed, present = math.ceil(1 / (1 - quantile) - 1e-9) - 1, self._training_subjects()
        return (
            f"not calibrated: a {bound} bound needs {needed} training subjects, and as many more "
            f"for each with a run that was stopped; there are {present.split()[0]}; it is the "
            "largest residual times a stated factor"
        )

    def cautions(self) -> list[str]:
        """Return the limits of the models, the most serious first."""
        lines = []
        if not self.tested:
            lines.append(
                "No subject was kept apart: each is predicted by models that have not seen it, "
                "but the family was chosen by the same errors."
            )
        elif self.test_subjects < FEW_SUBJECTS:
            lines.append(
                f"Only {counted(self.test_subjects, 'unseen subject')}: another sample of "
                "subjects would give other errors."
            )
        if not self.receipt["challenger"]["calibrated"]:
            lines.append(f"The upper bound is {self.calibration()}.")
        if (share := float(self.training["noisy"].mean())) >= LOADED_SHARE:
            share_text = percent(100 * share)
            lines.append(f"The runs were measured under load: {share_text} shared the machine.")
        for target, gain in self.gains.items():
            if gain.bounded and gain.low <= 0:
                lines.append(
                    f"{self.winner} is not shown to be better than the "
                    f"{BASELINE_TITLES[str(self.baseline)]} in {TITLES[target]}: gain of "
                    f"{gain.value:+.1f} points, {gain.low:+.1f} to {gain.high:+.1f}."
                )
        if cut_short := self.leaderboard.query("cut_short == True")["family"].tolist():
            names = ", ".join(cut_short)
            lines.append(f"The time limit of tuning was reached before all trials of {names}.")
        return lines

    @property
    def gains(self) -> dict[str, Interval]:
        """The baseline's error minus the winner's on the same test runs, in points, by target."""
        rival = self.predictions[self.predictions["family"] == self.baseline]
        both = self.winner_predictions.merge(rival, on="cell_key", suffixes=("", "_rival"))
        if both.empty:
            return {}
        return {
            target: clustered_mean(
                absolute_percentage_errors(both, target, "_rival")
                - absolute_percentage_errors(both, target),
                both["subject"].tolist(),
            )
            for target in TARGETS
        }


def absolute_percentage_errors(
    predictions: pd.DataFrame, target: str, suffix: str = ""
) -> pd.Series[float]:
    """Return the absolute error of the median of each run, in percent of the measured value."""
    actual = predictions[f"{target}_actual"]
    errors: pd.Series[float] = np.abs(predictions[f"{target}_median{suffix}"] - actual) / actual
    return 100 * errors


def mean_error(predictions: pd.DataFrame, target: str) -> Interval:
    """Return the mean absolute percentage error with its 95 % interval over subjects."""
    errors = absolute_percentage_errors(predictions, target)
    return clustered_mean(errors, predictions["subject"].tolist())
