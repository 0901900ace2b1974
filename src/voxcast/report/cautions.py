"""The limits of the results, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.features.split import MIN_SUBJECTS
from voxcast.quantities import counted
from voxcast.report.sentences import cpu_verdict
from voxcast.report.wording import TITLES, baseline_title, cpu_label, percent

if TYPE_CHECKING:
    from voxcast.laws.intervals import Interval
    from voxcast.report.narrative import AppNarrative, Narrative

# With fewer unseen subjects the page warns that they are few.
FEW_SUBJECTS = 20
# With a larger share of disturbed runs a set counts as measured under load.
LOADED_SHARE = 1 / 3


def app_cautions(app: AppNarrative, narrative: Narrative) -> list[str]:
    """Return the limits of the models of an application, the most serious first."""
    return [*_of_the_test(app), *_of_the_training(app), *_of_the_model(app, narrative)]


def _of_the_test(narrative: AppNarrative) -> list[str]:
    m, lines = narrative.models, []
    if not m.tested:
        lines.append(
            f"With fewer than {MIN_SUBJECTS} subjects none is kept apart. Errors are those of "
            f"cross-validation over {counted(m.training_subjects, 'subject')}: each is predicted "
            "by models that have not seen it, but the family was chosen by the same errors."
        )
    elif m.test_subjects == 1:
        lines.append(
            f"Only 1 unseen subject: errors on it have no interval and say little of other "
            f"subjects; cross-validation is over {counted(m.training_subjects, 'subject')}."
        )
    elif m.test_subjects < FEW_SUBJECTS:
        lines.append(
            f"Only {counted(m.test_subjects, 'unseen subject')}: the intervals are wide, and "
            "another sample of subjects would give other numbers."
        )
    if m.test_openings > 1:
        lines.append(
            f"Unseen subjects of this test table were judged on {m.test_openings} times, with "
            "this one. Errors of models that were chosen afterwards are biased downwards."
        )
    if not m.calibrated:
        lines.append(f"The upper bound is {narrative.calibration()}.")
    return lines


def _of_the_training(app: AppNarrative) -> list[str]:
    share = app.training.noisy_share
    if share < LOADED_SHARE:
        return []
    return [
        f"The runs that it was learned from were measured under load: {percent(100 * share)} of "
        "them shared the machine with other work, so its wall times are too long for an idle one."
    ]


def _of_the_model(app: AppNarrative, narrative: Narrative) -> list[str]:
    m, lines = app.models, []
    gains = {target: gain for target, gain in m.gain.items() if gain.bounded}
    rival = baseline_title(m.baseline) if m.baseline is not None else ""
    not_significant = [
        f"{TITLES[target]} ({_points(gain)})" for target, gain in gains.items() if gain.covers(0)
    ]
    worse = [
        f"{TITLES[target]} ({_points(gain)})"
        for target, gain in gains.items()
        if not gain.covers(0) and gain.value < 0
    ]
    if not_significant:
        lines.append(
            f"On unseen subjects {m.winner} and the {rival} do not differ "
            f"significantly in {', '.join(not_significant)}."
        )
    if worse:
        lines.append(f"On unseen subjects the {rival} beat {m.winner} in {', '.join(worse)}.")
    best = min(m.cross_validated, key=lambda name: m.cross_validated[name]["cpu_s"])
    if best != m.winner:
        lines.append(
            f"By CPU time alone {best} has the smaller cross-validated error "
            f"({percent(m.cross_validated[best]['cpu_s'])} against "
            f"{percent(m.cross_validated[m.winner]['cpu_s'])}); the choice counts memory too."
        )
    if m.voxels_gain is not None and m.voxels_gain.bounded and m.voxels_gain.covers(0):
        lines.append(
            "Reading the voxels gave no significant gain over the header alone in CPU time on "
            f"unseen subjects ({_points(m.voxels_gain)})."
        )
    leaderboard = narrative.inputs.leaderboard_of(app.app)
    cut_short = leaderboard.query("cut_short == True")["family"].tolist()
    if cut_short:
        names = ", ".join(cut_short)
        lines.append(f"The time limit of tuning was reached before all trials of {names}.")
    return lines


def run_cautions(narrative: Narrative) -> list[str]:
    """Return the limits of the measured runs of all applications."""
    inputs, lines = narrative.inputs, []
    runs = inputs.runs
    if narrative.noise is None:
        lines.append(f"The noise floor is {narrative.floor()}.")
    lines += [
        f"{cpu_label(comparison)}: {cpu_verdict(comparison)}."
        for comparison in narrative.cpu_comparisons
        if not comparison.differs
    ]
    censored = runs[runs["outcome"] != "completed"]["outcome"].value_counts()
    if len(censored):
        kinds = ", ".join(f"{n} {str(k).replace('_', ' ')}" for k, n in censored.items())
        lines.append(f"Runs that did not complete: {kinds}. Stopped runs are lower bounds.")
    if noisy := int(runs["noisy"].sum()):
        lines.append(
            f"{counted(noisy, 'run')} of {len(runs)} shared the machine with other work, which "
            "lengthens wall time."
        )
    unusable = int(inputs.catalogue["problem"].notna().sum())
    if unusable:
        lines.append(
            f"{counted(unusable, 'volume')} could not be used; the catalogue gives the reasons."
        )
    if runs["memory_method"].nunique() > 1:
        methods = ", ".join(sorted(map(str, runs["memory_method"].unique())))
        lines.append(f"Peak memory was measured by more than one method ({methods}).")
    return lines + [f"Not measured: {note.rstrip('.')}." for note in inputs.notes]


def _points(gain: Interval) -> str:
    def signed(points: float) -> str:
        return f"{abs(points):.1f} {'lower' if points >= 0 else 'higher'}"

    interval = f"95 % interval {signed(gain.high)} to {signed(gain.low)}"
    return f"error in points {signed(gain.value)}, {interval}"
