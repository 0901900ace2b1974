"""Phases read from traces, judged on runs that logged theirs: results/phases/memory.json.

Half of the subjects teach and the other half judge, and the reverse; settings of the model are
chosen within the half that teaches. The runs come from the recorded campaigns that are not
reserved, at their sampling rate and with every second, fourth and eighth sample, and from the
published SLANT runs where ``VOXCAST_SLANT_ARTIFACT`` names their folder.
``python -m benchmarks.memory_phases`` takes minutes.
"""

from __future__ import annotations

import os
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.errors import exits_cleanly
from voxcast.files import write_json
from voxcast.laws.intervals import clustered_mean
from voxcast.phases.segments import (
    LoggedRun,
    Segmenter,
    Settings,
    Trace,
    change_points,
    logged_runs,
    readable_traces,
    time_right,
)
from voxcast.runs.slant import KB, PHASES, RUNS, TRACES, VARIABLE
from voxcast.runs.store import open_history

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OUT = Path("results/phases/memory.json")
BATCHES = ("reference", "reference2")
EVERY = (1, 2, 4, 8)
TEACHERS = (1, 2, 3, 5, 10, 20)
DRAWS = 10
PENALTIES = (0.5, 1.0, 2.0, 4.0, 8.0)
TRIED = [Settings(bins, weight) for bins, weight in product((40, 80, 160), (0.03, 0.1, 0.3, 1.0))]
TASKS = [f"task_{number}" for number in range(1, 8)]
MINUTE_S = 60.0
SEED = 0
# Of the methods before, by this program at commits ac38fc7 and 5cf680b. The settings of the second
# were chosen with the runs that judge in view.
EARLIER = {
    "semi_markov": {
        "share_of_time_right": {
            "ants_register": 0.959, "ants_segment": 0.926, "dnn_train": 0.894,
            "tile_segment": 0.952, "slant": 0.970,
        },
        "slant_runs_right": {"every_1": 75, "every_2": 74},
        "slant_median_error_s": 7.0,
        "slant_by_number_of_logged_runs": {
            "1": 0.667, "2": 0.740, "3": 0.719, "5": 0.823, "10": 0.844, "20": 0.854,
        },
    },
    "change_points": {
        "share_of_time_right": {
            "ants_register": 0.937, "ants_segment": 0.833, "dnn_train": 0.798,
            "tile_segment": 0.927, "slant": 0.965,
        },
        "slant_runs_right": {"every_1": 74, "every_2": 46},
        "slant_median_error_s": 13.0,
        "slant_by_number_of_logged_runs": {
            "1": 0.313, "2": 0.490, "3": 0.740, "5": 0.698, "10": 0.781, "20": 0.813,
        },
    },
}  # fmt: skip


@exits_cleanly
def main() -> int:
    """Segment the runs of all applications, and write how well."""
    history = open_history([Path("data/history") / batch for batch in BATCHES])
    traces, runs = readable_traces(history.traces), history.runs.set_index("cell_key")
    subjects = runs["subject"].where(runs["subject"] != "", runs.index)
    by_app: dict[str, tuple[Sequence[str], list[LoggedRun]]] = {}
    for app, of_app in runs.groupby("app", sort=True):
        phases = history.phases[history.phases["cell_key"].isin(set(of_app.index))]
        by_app[str(app)] = logged_runs(
            phases, traces, {str(key): str(name) for key, name in subjects.items()}
        )
    slant: list[LoggedRun] = []
    if folder := os.environ.get(VARIABLE):
        slant = slant_runs(Path(folder))
    chosen, tried = chosen_settings([*by_app.values(), *([(TASKS, slant)] if slant else [])])
    results: dict[str, Any] = {"earlier_methods": EARLIER, "settings": tried}
    for app, (names, logged) in by_app.items():
        by_rate = {}
        for every in EVERY:
            print(f"{app}: every {every}", file=sys.stderr, flush=True)
            by_rate[f"every_{every}"] = accuracy(names, logged, every, chosen)
        results[app] = {"phases": names, **by_rate}
    if slant:
        results["slant"] = slant_accuracy(slant, chosen)
    write_json(OUT, results)
    return 0


def chosen_settings(
    applications: Sequence[tuple[Sequence[str], list[LoggedRun]]],
) -> tuple[list[Settings], list[dict[str, Any]]]:
    """Return the settings for the judges of each half, and how good each was in either half.

    Those are best among the runs of the other half: by the share of time in the right phase, where
    a quarter of the subjects is segmented by the other quarter; the mean of all applications.
    """
    shares = np.zeros((2, len(TRIED)))
    for half, number in product((0, 1), range(len(TRIED))):
        print(f"half {half}: {TRIED[number]}", file=sys.stderr, flush=True)
        for names, runs in applications:
            half_of = halves(runs)
            within = [run for run in runs if half_of[run.subject] == half]
            share = crossed(names, within, [TRIED[number]] * 2)[1].mean()
            shares[half, number] += share / len(applications)
    best = shares.argmax(axis=1)
    tried = [
        {"bins": settings.bins, "weight": settings.weight,
         "share_of_time_right_by_half": shares[:, number].tolist(),
         "best_in_halves": np.flatnonzero(best == number).tolist()}
        for number, settings in enumerate(TRIED)
    ]  # fmt: skip
    return [TRIED[best[1]], TRIED[best[0]]], tried


def accuracy(
    names: Sequence[str], logged: Sequence[LoggedRun], every: int, chosen: Sequence[Settings]
) -> dict[str, Any]:
    """Return errors of boundaries, and the share of time in the right phase, by subject."""
    runs = [LoggedRun(thinned(run.trace, every), run.boundaries_s, run.subject) for run in logged]
    errors, shares, usual = crossed(names, runs, chosen)
    by_subject = [run.subject for run in runs]
    steps_s = np.array([np.median(np.diff(run.trace.t_s)) for run in runs])
    return {
        "runs": len(runs),
        "subjects": len(set(by_subject)),
        "step_s": float(np.median(steps_s)),
        "error_s": {
            "median": float(np.median(errors)),
            "quantile_90": float(np.quantile(errors, 0.9)),
            "median_by_boundary": np.median(errors, axis=0).tolist(),
            "mean_absolute": interval(errors.mean(axis=1), by_subject),
        },
        "within_two_steps": interval((errors <= 2 * steps_s[:, None]).mean(axis=1), by_subject),
        "share_of_time_right": interval(shares, by_subject),
        "share_usual": float(usual.mean()),
    }


def crossed(
    names: Sequence[str],
    runs: Sequence[LoggedRun],
    settings: Sequence[Settings] = (Settings(), Settings()),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return errors in seconds, shares of time right, and which runs look as usual.

    Each half of the subjects is segmented by a model of the other half, with settings of its own.
    """
    half_of = halves(runs)
    segmenters = [
        Segmenter(names, [run for run in runs if half_of[run.subject] != half], settings[half])
        for half in (0, 1)
    ]
    errors, shares, usual = [], [], []
    for run in runs:
        starts_s, is_usual = segmenters[half_of[run.subject]].boundaries_s(run.trace)
        errors.append(np.abs(starts_s - run.boundaries_s))
        shares.append(time_right(run.trace, run.boundaries_s, starts_s))
        usual.append(is_usual)
    return np.array(errors), np.array(shares), np.array(usual)


def halves(runs: Sequence[LoggedRun]) -> dict[str, int]:
    """Return 0 or 1 for each subject."""
    return {name: n % 2 for n, name in enumerate(sorted({run.subject for run in runs}))}


def slant_accuracy(runs: Sequence[LoggedRun], chosen: Sequence[Settings]) -> dict[str, Any]:
    """Return how well the seven tasks of the fMRI runs are found in their traces as published."""
    subjects = [run.subject for run in runs]
    last_s = np.array([run.trace.t_s[-1] - run.boundaries_s[-1] for run in runs])
    by_rate = {}
    for every in EVERY:
        thin = [LoggedRun(thinned(r.trace, every), r.boundaries_s, r.subject) for r in runs]
        errors, shares, _ = crossed(TASKS, thin, chosen)
        is_right = np.asarray((errors <= MINUTE_S).all(axis=1))
        by_rate[f"every_{every}"] = {
            "all_boundaries_within_a_minute": interval(is_right, subjects),
            "runs_right": int(is_right.sum()),
            "runs_right_with_a_last_task_above_100_s": int(is_right[last_s > 100].sum()),
            "within_a_sample": float((errors <= every * 30.0).all(axis=1).mean()),
            "share_by_boundary": (errors <= MINUTE_S).mean(axis=0).tolist(),
            "error_s": {"median": float(np.median(errors)),
                        "quantile_90": float(np.quantile(errors, 0.9))},
            "share_of_time_right": interval(shares, subjects),
        }  # fmt: skip
    return {
        "runs": len(runs),
        "subjects": len(set(subjects)),
        "runs_with_a_last_task_above_100_s": int((last_s > 100).sum()),
        **by_rate,
        "by_number_of_logged_runs": few_teachers(TASKS, runs),
        "alone": alone(runs),
    }


def few_teachers(names: Sequence[str], runs: Sequence[LoggedRun]) -> dict[str, Any]:
    """Return the share of other runs that is right when few were logged, over draws."""
    random, subjects = np.random.default_rng(SEED), sorted({run.subject for run in runs})
    shares: dict[str, Any] = {}
    for count in TEACHERS:
        of_draws = []
        for _ in range(DRAWS):
            half = set(random.permutation(subjects)[: len(subjects) // 2])
            others = [run for run in runs if run.subject in half]
            drawn = random.choice(len(others), count, replace=False)
            segmenter = Segmenter(names, [others[n] for n in drawn])
            judges = [run for run in runs if run.subject not in half]
            of_draws.append(share_within(segmenter, judges))
        low, middle, high = np.quantile(of_draws, [0.1, 0.5, 0.9])
        shares[str(count)] = {
            "median": float(middle),
            "quantile_10": float(low),
            "quantile_90": float(high),
        }
    return shares


def share_within(segmenter: Segmenter, runs: Iterable[LoggedRun]) -> float:
    """Return the share of runs with all boundaries within a minute."""
    return float(np.mean([
        np.all(np.abs(segmenter.boundaries_s(run.trace)[0] - run.boundaries_s) <= MINUTE_S)
        for run in runs
    ]))  # fmt: skip


def alone(runs: Sequence[LoggedRun]) -> dict[str, Any]:
    """Return how many boundaries have a change point of the run alone within a minute.

    The penalty is the one with the best F1 score of change points in the other half of subjects.
    """
    half_of = halves(runs)
    chosen = []
    for half in (0, 1):
        teachers = [run for run in runs if half_of[run.subject] != half]
        scores = [np.mean([f1_score(run, penalty) for run in teachers]) for penalty in PENALTIES]
        chosen.append(PENALTIES[int(np.argmax(scores))])
    hits = [near_points(run, chosen[half_of[run.subject]]) for run in runs]
    near, points = [hit[0] for hit in hits], [hit[1] for hit in hits]
    subjects = [run.subject for run in runs]
    return {
        "penalties_chosen": chosen,
        "boundaries_with_a_change_point": interval(np.mean(near, axis=1), subjects),
        "share_by_boundary": np.mean(near, axis=0).tolist(),
        "mean_change_points": float(np.mean(points)),
    }


def near_points(run: LoggedRun, penalty: float) -> tuple[np.ndarray, int]:
    """Return which boundaries have a change point within a minute, and the number of points."""
    points_s = change_points(run.trace, penalty)
    distances = np.abs(run.boundaries_s[:, None] - points_s).min(axis=1, initial=np.inf)
    return distances <= MINUTE_S, len(points_s)


def f1_score(run: LoggedRun, penalty: float) -> float:
    """Return the harmonic mean of recall and precision of the change points of a run."""
    near, points = near_points(run, penalty)
    return float(2 * near.sum() / (len(near) + points))


def slant_runs(folder: Path) -> list[LoggedRun]:
    """Return the fMRI runs with their traces as published, not thinned as on import."""
    subjects = pd.read_csv(folder / RUNS).set_index("run")["subject"]
    tasks = pd.read_csv(folder / PHASES).sort_values(["run", "task"])
    samples = dict(iter(pd.read_csv(folder / TRACES).groupby("run")))
    runs = []
    for run, of_run in tasks.groupby("run"):
        seconds, memory = (
            samples[run][name].to_numpy(float) for name in ("t_s", "node_used_mem_kb")
        )
        starts_s = of_run["start_s"].to_numpy(float)[1:]
        runs.append(LoggedRun(Trace(seconds, memory * KB, None), starts_s, str(subjects[run])))
    return runs


def thinned(trace: Trace, every: int) -> Trace:
    """Return every so manieth sample of a trace, two at least."""
    if len(trace.t_s) <= every:
        return trace
    cpu_s = None if trace.cpu_s is None else trace.cpu_s[::every]
    return Trace(trace.t_s[::every], trace.rss_bytes[::every], cpu_s)


def interval(values: Sequence[float] | np.ndarray, subjects: Sequence[str]) -> Mapping[str, float]:
    """Return a mean with its 95 % interval over subjects."""
    mean = clustered_mean(np.asarray(values, dtype=float), list(subjects))
    return {"value": mean.value, "low": mean.low, "high": mean.high}


if __name__ == "__main__":
    sys.exit(main())
