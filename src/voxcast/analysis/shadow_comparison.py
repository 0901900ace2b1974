"""A champion and the challenger in its shadow: how their answers differ, and who was nearer.

Answers to the same question count once, the last. Intervals are 95 % over distinct images, since
the answers for one image are not independent.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from voxcast.files import sha256_of
from voxcast.images.image_identity import image_identity
from voxcast.laws.intervals import Interval, clustered_mean
from voxcast.models.metrics import binomial_interval
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from voxcast.serving.shadow_log import ShadowAnswer

MEDIAN, UPPER = 1, 2  # positions among the quantiles
# Image, application, device, CPUs, GPUs, hash of the parameters.
Question = tuple[str, str, str, int, int, str]


@dataclass(frozen=True)
class Run:
    """A completed run that an answer was about: what it used, and when it started."""

    image: str
    app: str
    device: str
    cpus: int
    gpus: int
    parameters_sha256: str
    host: str
    started_at: str
    used: dict[str, float]

    @property
    def question(self) -> Question:
        """What an answer about this run was asked."""
        allocation = (self.device, self.cpus, self.gpus)
        return (self.image, self.app, *allocation, self.parameters_sha256)


@dataclass(frozen=True)
class Judgement:
    """Both against runs that were measured after they answered, of one target.

    Attributes
    ----------
    champion_error, challenger_error : Interval
        Mean |log(median / measured)|.
    gain : Interval
        Error of the champion minus that of the challenger, run by run.
    champion_held, challenger_held : int
        Images of which no run was above the upper bound, of `images`.
    champion_interval, challenger_interval : tuple of float
        Clopper-Pearson intervals of these shares.
    """

    champion_error: Interval
    challenger_error: Interval
    gain: Interval
    champion_held: int
    challenger_held: int
    images: int
    champion_interval: tuple[float, float]
    challenger_interval: tuple[float, float]


@dataclass(frozen=True)
class ShadowComparison:
    """The answers of one pair of versions to the questions about one application.

    Attributes
    ----------
    versions : tuple of str
        Of the champion and of the challenger.
    quantile : float
        Probability of the upper bounds.
    answers, questions, images : int
        Number of rows answered, of distinct questions and of distinct images.
    median_ratio, upper_ratio : dict of str to Interval
        By target: geometric mean of challenger / champion.
    out_of_range : tuple of int
        Questions out of range for both, for the champion alone, for the challenger alone.
    runs : int
        Number of runs on which both could be judged.
    judgements : dict of str to Judgement
        By target; empty where there is no such run.
    """

    versions: tuple[str, str]
    app: str
    quantile: float
    answers: int
    questions: int
    images: int
    median_ratio: dict[str, Interval]
    upper_ratio: dict[str, Interval]
    out_of_range: tuple[int, int, int]
    runs: int
    judgements: dict[str, Judgement]


def shadow_comparisons(
    answers: Sequence[ShadowAnswer],
    runs: Sequence[Run] = (),
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[ShadowComparison]:
    """Compare the answers by pair of versions, application and quantile, the newest pair first.

    Parameters
    ----------
    answers : sequence of ShadowAnswer
        See `voxcast.serving.shadow_log.ShadowLog.answers`.
    runs : sequence of Run
        Runs on record, see `runs_of`.
    defaults : mapping, optional
        Default parameters by application, which an answer without parameters is about.
    """
    default_hashes = {app: sha256_of(dict(p)) for app, p in (defaults or {}).items()}
    groups: dict[tuple[tuple[str, str], str, float], list[ShadowAnswer]] = defaultdict(list)
    for answer in answers:
        groups[answer.versions, answer.app, answer.quantile].append(answer)
    runs_by_question: dict[Question, list[Run]] = defaultdict(list)
    for run in runs:
        runs_by_question[run.question].append(run)
    compared = [_comparison(g, runs_by_question, default_hashes) for g in groups.values()]
    return compared[::-1]


def _comparison(
    answers: Sequence[ShadowAnswer],
    runs_by_question: Mapping[Question, Sequence[Run]],
    default_hashes: Mapping[str, str],
) -> ShadowComparison:
    last = {(a.image, a.device, a.cpus, a.gpus, a.parameters_sha256, a.host): a for a in answers}
    # Where requests are not known, nothing tells that two answers are to one question.
    questions = [a for a in last.values() if a.image] + [a for a in answers if not a.image]
    images = [a.image for a in questions]
    champion_out, challenger_out = zip(*(a.out_of_range for a in questions), strict=True)
    pairs = list(zip(champion_out, challenger_out, strict=True))
    first_at: dict[Question, str] = {}
    for answer in answers:
        first_at.setdefault(_question(answer, default_hashes), answer.at)
    joined = [
        (answer, run)
        for answer in questions
        for question in [_question(answer, default_hashes)]
        for run in runs_by_question.get(question, ())
        if answer.host in ("", run.host) and _after(run, first_at[question])
    ]
    first = questions[0]
    return ShadowComparison(
        first.versions,
        first.app,
        first.quantile,
        len(answers),
        len(questions),
        len({image for image in images if image}),
        {target: _ratio(questions, images, target, MEDIAN) for target in TARGETS},
        {target: _ratio(questions, images, target, UPPER) for target in TARGETS},
        (pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))),
        len(joined),
        {target: _judgement(joined, target) for target in TARGETS} if joined else {},
    )


def _ratio(
    questions: Sequence[ShadowAnswer], images: Sequence[str], target: str, position: int
) -> Interval:
    logs = [
        math.log(b[position] / a[position]) for a, b in (q.quantiles[target] for q in questions)
    ]
    mean = clustered_mean(logs, images)
    return Interval(math.exp(mean.value), math.exp(mean.low), math.exp(mean.high), mean.subjects)


def _question(answer: ShadowAnswer, default_hashes: Mapping[str, str]) -> Question:
    parameters = answer.parameters_sha256 or default_hashes.get(answer.app, "")
    return (answer.image, answer.app, answer.device, answer.cpus, answer.gpus, parameters)


def _after(run: Run, at: str) -> bool:
    """Whether a run started after an answer, so that neither model learned from it."""
    try:
        return datetime.fromisoformat(run.started_at) > datetime.fromisoformat(at)
    except (TypeError, ValueError):  # no time, or one without a zone
        return False


def _judgement(joined: Sequence[tuple[ShadowAnswer, Run]], target: str) -> Judgement:
    images = [answer.image for answer, _ in joined]
    errors: tuple[list[float], list[float]] = ([], [])
    exceeded: tuple[set[str], set[str]] = (set(), set())
    for answer, run in joined:
        for side, quantiles in enumerate(answer.quantiles[target]):
            errors[side].append(abs(math.log(quantiles[MEDIAN] / run.used[target])))
            if run.used[target] > quantiles[UPPER]:
                exceeded[side].add(answer.image)
    n = len(set(images))
    held = [n - len(above) for above in exceeded]
    gains = [a - b for a, b in zip(*errors, strict=True)]
    return Judgement(
        clustered_mean(errors[0], images),
        clustered_mean(errors[1], images),
        clustered_mean(gains, images),
        held[0],
        held[1],
        n,
        binomial_interval(held[0], n),
        binomial_interval(held[1], n),
    )


def runs_of(profiles: pd.DataFrame, volumes: pd.DataFrame) -> list[Run]:
    """Return the completed runs with the identities of their images.

    Parameters
    ----------
    profiles : DataFrame
        Columns of `voxcast.history.run_table`.
    volumes : DataFrame
        Headers and characteristics by ``volume_id``.
    """
    rows: Iterable[Any] = volumes.to_dict("records")
    images = {row["volume_id"]: image_identity(row) for row in rows}
    completed = profiles[profiles["outcome"] == "completed"].dropna(subset=list(TARGETS))
    records: Iterable[Any] = completed.to_dict("records")
    return [
        Run(
            images.get(run["volume_id"], ""),
            str(run["app"]),
            str(run["device"]),
            int(run["cpus"]),
            int(run["gpus"]),
            _hash_of(run["parameters_json"]),
            str(run.get("host_id") or ""),
            str(run["started_at"]),
            {target: float(run[target]) for target in TARGETS},
        )
        for run in records
        if images.get(run["volume_id"]) and all(run[target] > 0 for target in TARGETS)
    ]


def _hash_of(parameters_json: Any) -> str:
    try:
        return sha256_of(json.loads(str(parameters_json)))
    except ValueError:
        return "unreadable"
