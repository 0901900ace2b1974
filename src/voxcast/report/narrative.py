"""The sentences of the report: the answer first, then everything that speaks against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.analysis.noise import Comparison, Noise, compare_cpus, repeat_noise
from voxcast.laws.intervals import Interval
from voxcast.quantities import format_seconds
from voxcast.report.comparison import BASELINES, Verdict
from voxcast.report.formatting import TITLES, counted, heading, percent, percent_interval

if TYPE_CHECKING:
    from voxcast.report.inputs import Evidence

# Below this many unseen subjects the page says that they are few, in its first lines.
FEW_SUBJECTS = 20


@dataclass(frozen=True)
class Findings:
    """What page and summary both say.

    Attributes
    ----------
    verdict : Verdict
        The numbers of the comparison.
    noise : Noise or None
        Pooled over all repeats of what is modelled; None if nothing was repeated undisturbed.
    comparisons : list of Comparison
        Numbers of CPUs.
    """

    evidence: Evidence
    verdict: Verdict
    noise: Noise | None
    comparisons: list[Comparison]

    @classmethod
    def of(cls, evidence: Evidence) -> Findings:
        """Work out what the evidence says."""
        pooled = repeat_noise(evidence.modelled)
        return cls(
            evidence,
            Verdict.of(evidence),
            pooled[0] if pooled else None,
            compare_cpus(evidence.completed),
        )

    @property
    def floor_percent(self) -> dict[str, float]:
        """The noise floor by target, in percent; empty if nothing was repeated.

        It is an error, to be held against those of models, see `Noise.error_percent`.
        """
        if self.noise is None:
            return {}
        errors = {target: self.noise.error_percent(target) for target in self.noise.cv}
        return {target: error for target, error in errors.items() if math.isfinite(error)}

    def headline(self) -> str:
        """Return the answer as one sentence."""
        v = self.verdict
        error = v.tested.get(v.winner, {}).get("cpu_s")
        if error is None:
            known = percent(v.cross_validated[v.winner]["cpu_s"])
            return (
                f"The {v.winner} model is off by {known} in CPU time, checked on no unseen subject"
            )
        off = f"The {v.winner} model is off by {percent(error.value)} in CPU time"
        if v.winner in BASELINES:
            return f"No model beat the {v.winner} baseline, which is off by {percent(error.value)}"
        if v.baseline is None or "cpu_s" not in v.gain:
            return f"{off} on {counted(v.test_subjects, 'unseen subject')}"
        rival = f"the {v.baseline} baseline by {percent(v.tested[v.baseline]['cpu_s'].value)}"
        if v.gain["cpu_s"].covers(0):
            few = counted(v.test_subjects, "unseen subject")
            return f"{off}, {rival}: {few} cannot settle which is better"
        if v.gain["cpu_s"].value < 0:
            return f"{off} on unseen subjects, and {rival}: the baseline did better there"
        return f"{off} on {counted(v.test_subjects, 'unseen subject')}, {rival}"

    def measured(self) -> str:
        """Say what was measured."""
        runs, done = self.evidence.runs, self.evidence.completed
        if done.empty:
            return f"None of {counted(len(runs), 'run')} completed"
        tried = [
            f"{_cpus(sorted(own['cpus'].unique()))} on {device}"
            for device, own in done.groupby("device", sort=True)
        ]
        apps = ", ".join(sorted(runs["app"].unique()))
        seen = done[done["volume_id"] != ""]
        return (
            f"{len(done)} of {counted(len(runs), 'run')} completed: {apps} on "
            f"{counted(seen['volume_id'].nunique(), 'volume')} of "
            f"{counted(seen['subject'].nunique(), 'subject')}, with {' and '.join(tried)}; "
            f"{format_seconds(float(done['cpu_s'].sum()))} of CPU time"
        )

    def won(self) -> str:
        """Say who won and what the registry holds."""
        v = self.verdict
        if v.registered:
            why = {"first": "the registry was empty", "better": "better than the champion before"}
            return f"{v.winner} is champion, version {v.version} ({why.get(v.reason, v.reason)})"
        held = f"version {v.version} ({v.champion})"
        if v.champion == v.winner:
            return f"{v.winner} leads again; {held} stays champion ({v.detail})"
        return f"{v.winner} leads by cross-validation, but {held} stays champion ({v.detail})"

    def cross_validated(self) -> str:
        """Say the winner's cross-validated errors beside those of the best baseline."""
        v = self.verdict
        own = v.cross_validated[v.winner]
        text = f"{v.winner} {percent(own['cpu_s'])} in CPU time"
        if v.baseline is not None:
            rival = v.cross_validated[v.baseline]["cpu_s"]
            text += f", the {v.baseline} baseline {percent(rival)}"
            if own["cpu_s"] > 0:
                text += f" ({rival / own['cpu_s']:.1f} times the error)"
        return f"{text}; {counted(v.training_subjects, 'subject')}{self._beside()}"

    def tested(self) -> str:
        """Say the same of unseen subjects, with intervals."""
        v = self.verdict
        own = v.tested.get(v.winner)
        if not own:
            return "no subject fell on the test side: nothing is known of unseen ones"
        text = f"{percent_interval(own['cpu_s'])} in CPU time"
        if v.baseline is not None and v.baseline in v.tested:
            text += f", {v.baseline} {percent_interval(v.tested[v.baseline]['cpu_s'])}"
        runs = f"{counted(v.test_subjects, 'subject')}, {counted(v.test_runs, 'run')}"
        return f"{text}; {runs}{self._beside()}"

    def _beside(self) -> str:
        floor = self.floor_percent.get("cpu_s")
        return "" if floor is None else f"; noise floor {percent(floor)}"

    def trust(self) -> str:
        """Say what the upper bound promises."""
        v = self.verdict
        level = percent(100 * v.upper_quantile)
        if v.calibrated:
            return f"calibrated: the upper bound is meant to hold for {level} of new subjects"
        return (
            f"not calibrated: a {level} bound takes {v.subjects_needed} training subjects, there "
            f"are {v.training_subjects}; it is the largest residual seen times a stated factor"
        )

    def floor(self) -> str:
        """Say how far repeats of one run differ."""
        if self.noise is None:
            undisturbed = " undisturbed" if self.evidence.modelled["noisy"].any() else ""
            return f"no run was repeated{undisturbed}: how much of any error is noise is not known"
        cv = self.noise.cv
        return (
            f"repeats of one run differ by {percent(cv['cpu_s'].value)} in CPU time and "
            f"{percent(cv['runtime_s'].value)} in wall time "
            f"({counted(self.noise.cells, 'run')} repeated)"
        )

    def compared(self) -> str:
        """Say what more CPUs change."""
        if not self.comparisons:
            return "only one configuration was measured: nothing to compare"
        several = len({one.label for one in self.comparisons}) > 1
        return "; ".join(f"{one.label}: " * several + one.verdict for one in self.comparisons)

    def cautions(self) -> list[str]:
        """Return everything that limits or contradicts the answer, the gravest first."""
        return [
            *self._of_the_test(),
            *self._of_the_model(),
            *self._of_the_runs(),
        ]

    def _of_the_test(self) -> list[str]:
        v, said = self.verdict, []
        if not v.tested:
            said.append(
                "No subject fell on the test side, so no error below is of unseen subjects."
            )
        elif v.test_subjects < FEW_SUBJECTS:
            said.append(
                f"Only {counted(v.test_subjects, 'unseen subject')}: the intervals are wide, and "
                "another draw of subjects would give other numbers."
            )
        if v.test_openings > 1:
            said.append(
                f"The test table was opened {v.test_openings} times; what was chosen after "
                "looking is flattered by it."
            )
        if not v.calibrated:
            said.append(f"The upper bound is {self.trust()}.")
        return said

    def _of_the_model(self) -> list[str]:
        v, said = self.verdict, []
        even = [
            f"{TITLES[target]} ({_points(gain)})"
            for target, gain in v.gain.items()
            if gain.covers(0)
        ]
        worse = [
            f"{TITLES[target]} ({_points(gain)})"
            for target, gain in v.gain.items()
            if not gain.covers(0) and gain.value < 0
        ]
        if even:
            said.append(
                f"On unseen subjects {v.winner} and the {v.baseline} baseline cannot be told "
                f"apart in {', '.join(even)}."
            )
        if worse:
            said.append(
                f"On unseen subjects the {v.baseline} baseline beat {v.winner} in "
                f"{', '.join(worse)}."
            )
        best = min(v.cross_validated, key=lambda name: v.cross_validated[name]["cpu_s"])
        if best != v.winner:
            said.append(
                f"By CPU time alone {best} has the smaller cross-validated error "
                f"({percent(v.cross_validated[best]['cpu_s'])} against "
                f"{percent(v.cross_validated[v.winner]['cpu_s'])}); the choice counts memory too."
            )
        if v.voxels_gain is not None and v.voxels_gain.covers(0):
            said.append(
                "Reading the voxels did not show a gain over the header alone in CPU time on "
                f"unseen subjects ({_points(v.voxels_gain)})."
            )
        cut = self.evidence.leaderboard.query("cut_short == True")["family"].tolist()
        if cut:
            said.append(f"The time for tuning ended before all trials of {', '.join(cut)}.")
        return said

    def _of_the_runs(self) -> list[str]:
        runs, said = self.evidence.runs, []
        if self.noise is None:
            said.append(f"{heading(self.floor())}.")
        said += [f"{one.label}: {one.verdict}." for one in self.comparisons if not one.differs]
        other = runs[runs["outcome"] != "completed"]["outcome"].value_counts()
        if len(other):
            kinds = ", ".join(f"{n} {str(k).replace('_', ' ')}" for k, n in other.items())
            said.append(f"Runs that did not complete are bounds and taught no model: {kinds}.")
        if noisy := int(runs["noisy"].sum()):
            said.append(
                f"{counted(noisy, 'run')} of {len(runs)} shared the machine with other work; "
                "their wall time is longer for it."
            )
        bad = self.evidence.catalogue["problem"].notna().sum()
        if bad:
            said.append(
                f"{counted(int(bad), 'volume')} could not be used; the catalogue says why."
            )
        if runs["memory_method"].nunique() > 1:
            methods = ", ".join(sorted(map(str, runs["memory_method"].unique())))
            said.append(f"Peak memory was measured in more than one way ({methods}).")
        return said + [f"Not measured: {note.rstrip('.')}." for note in self.evidence.notes]


def _points(gain: Interval) -> str:
    def side(points: float) -> str:
        return f"{abs(points):.1f} {'lower' if points >= 0 else 'higher'}"

    middle = f"error in points {side(gain.value)}"
    if not gain.bounded:
        return middle
    return f"{middle}, 95 % interval {side(gain.high)} to {side(gain.low)}"


def _cpus(numbers: list[int]) -> str:
    if numbers == [1]:
        return "1 CPU"
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last} CPUs" if most else f"{last} CPUs"
