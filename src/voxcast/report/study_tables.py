"""The studies of the recorded histories as tables, and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.files import read_json
from voxcast.report.tables import UPP_NOTE, Table
from voxcast.report.templates import render
from voxcast.report.wording import TITLES, heading, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Result = Mapping[str, Any]

CONTENDERS = {
    "voxcast": "voxcast", "harp_WTM": "HARP, WTM", "harp_MAE": "HARP, MAE",
    "harp_full_scale": "HARP, full scale alone",
    "harp_WTM_custom": "HARP custom, WTM", "harp_MAE_custom": "HARP custom, MAE",
    "voxels": "linear in voxels", "constant": "constant",
}  # fmt: skip
STRATEGIES = {
    "laboratory": "laboratory's rule", "harp_doubling": "HARP, doubled",
    "population": "optimal, one for all", "per_image": "optimal by image",
}  # fmt: skip
HARP_NOTE = (
    "HARP is a published predictor of run times, trained on runs that were scaled down and a few "
    "at full scale, without the defects of its release. It fits many candidates and selects one: "
    "by WTM, the one that is too low most seldom (smallest UPP, then smallest OV_MAPE), or by "
    "MAE, the one with the smallest mean absolute error. Custom: its estimator that is told the "
    "time of each epoch. Full scale alone: its regressors without scaled-down runs."
)
TRANSFER_RUNS = (2, 8, 16)  # numbers of runs that are shown


def study_tables(results: Mapping[str, Result]) -> list[Table]:
    """Return the tables of the studies whose results are given by name of the study."""
    tables = [
        make(results[name])
        for name, makers in MAKERS.items()
        if name in results
        for make in makers
    ]
    return [table for table in tables if table.rows]


def _errors(result: Result) -> Table:
    rows = []
    unmeasured: dict[str, list[str]] = {}
    for app, holdouts in result.items():
        for holdout, by_contender in holdouts.items():
            if "not_measurable" in by_contender:
                reason = f"unseen {holdout}, {by_contender['not_measurable']}"
                unmeasured.setdefault(reason, []).append(app)
            else:
                cells = (_wall_time_error(by_contender.get(name)) for name in CONTENDERS)
                rows.append([f"{app}: unseen {holdout}", *cells])
    missing = "; ".join(f"{reason} ({', '.join(apps)})" for reason, apps in unmeasured.items())
    caption = (
        "Mean absolute error of wall time in percent, with 95 % interval over subjects. Each row "
        "holds out runs by a different criterion"
    )
    titles = [t if t == "voxcast" else heading(t) for t in CONTENDERS.values()]
    notes = (HARP_NOTE, *([f"Not measurable: {missing}."] if missing else []))
    return Table(caption, ["Application and holdout", *titles], rows, notes)


def _wall_time_error(scores: Result | None) -> str:
    return "" if scores is None else _error(scores["errors"]["runtime_s"])


def _requests(result: Result) -> Table:
    rows = []
    for app, holdouts in result.items():
        for name, title in CONTENDERS.items():
            scores = holdouts.get("subject", {}).get(name, {})
            request = scores.get("request")
            if request:
                ratio = f"{request['asked_over_used']:.2f}×"
                upp, excess = percent(request["upp"]), percent(request["ov_mape"])
                rows.append([f"{app}: {title}", upp, excess, ratio])
    caption = "Requested time on unseen subjects: the 95 % bound of voxcast, the time of HARP"
    head = ["", "Requested too little (UPP)", "Excess (OV_MAPE)", "Requested / used"]
    return Table(caption, head, rows, (UPP_NOTE, HARP_NOTE))


def _ablation(result: Result) -> Table:
    feature_sets = list(dict.fromkeys(name for by_set in result.values() for name in by_set))
    rows = []
    for target in ("cpu_s", "peak_rss_bytes"):
        for app, by_set in result.items():
            cells = [
                _error(by_set[name][target]) if name in by_set else "" for name in feature_sets
            ]
            rows.append([f"{app}: {TITLES[target]}", *cells])
    caption = (
        "Error in percent by the features given to the model, on unseen subjects; models are "
        "selected within the training runs of each fold (nested). The axes are those of HARP: "
        "input, hardware, parameters of the application"
    )
    return Table(caption, ["", *map(heading, feature_sets)], rows)


def _ablation_differences(result: Result) -> Table:
    rows = []
    for app, by_set in result.items():
        for name, by_target in by_set.items():
            compared = by_target["cpu_s"]
            if "difference" not in compared:
                continue
            difference = compared["difference"]
            versus = f"{app}: {name}, against {compared['against']}"
            rows.append([versus, _points_of(difference), f"{difference['ratio']:.2f}×"])
    caption = (
        "What leaving information out costs: difference of the errors of CPU time in points, "
        "paired, with 95 % interval over subjects, and their ratio"
    )
    return Table(caption, ["", "Difference", "Ratio"], rows)


def _second_batch(result: Result) -> Table:
    return _other_batch("A second batch, whose subjects were not used for training", result)


def _real(result: Result) -> Table:
    return _other_batch("Three real heads of other scanners, by models of generated heads", result)


def _heads(result: Result) -> Table:
    return _other_batch("Thirteen real heads of other scanners", result)


def _other_batch(title: str, result: Result) -> Table:
    rows = []
    for app, scores in result.items():
        for target, target_title in TITLES.items():
            coverage, sharpness = scores["coverage"][target], scores["sharpness"][target]
            low, high = (100 * end for end in coverage["interval"])
            rows.append(
                [
                    f"{app}: {target_title}",
                    _error(scores["errors"][target]),
                    _normalised_error(scores["errors"][target]),
                    f"{coverage['covered']} of {coverage['subjects']} ({low:.0f} to {high:.0f} %)",
                    " · ".join(str(quartile["covered"]) for quartile in coverage["by_quartile"]),
                    f"{sharpness['asked_over_used']:.2f}×",
                    f"{sharpness['one_request_asked_over_used']:.2f}×",
                    _out_of_range(scores.get("answers")),
                ]
            )
    caption = (
        f"{title}: error (of times also at the usual speed of the machine in that sitting), "
        "subjects below the 95 % bound with exact interval, runs below the bound by quartile of "
        "the measured value, and requested over used amounts"
    )
    head = ["", "Error", "At the usual speed", "Subjects below the bound", "Runs by quartile",
            "Requested / used", "Same with one request for all",
            "Runs out of range · calibrated"]  # fmt: skip
    return Table(caption, head, rows)


def _out_of_range(answers: Result | None) -> str:
    if answers is None:
        return ""
    return "{out_of_range} · {calibrated} of {runs}".format(**answers)


def _transfer(result: Result) -> Table:
    rows = []
    for pair, curve in result.items():
        for point in curve:
            if point["runs"] in TRANSFER_RUNS:
                errors = [percent(point[name]) for name in ("cold", "transferred", "pooled")]
                rows.append([pair, str(point["runs"]), f"{point['cost_s']:.0f} s", *errors])
    caption = (
        "Transfer from the history of one network to another: median error of CPU time by number "
        "of runs of the target, whose CPU time is the cost"
    )
    head = ["Source and target", "Runs", "Cost", "Without transfer", "Scaled by one factor",
            "One pooled model"]  # fmt: skip
    return Table(caption, head, rows)


def _per_image(result: Result) -> Table:
    rows = []
    for app, by_prices in result.items():
        for prices, scores in by_prices.items():
            if prices in ("sd_log", "not_measurable"):
                continue
            costs = [_normalised_cost(scores["ways"][strategy]) for strategy in STRATEGIES]
            remaining = percent(100 * scores["excess_left"])
            rows.append([f"{app}, {prices}", *costs, f"{scores['over_implied']:.2f}×", remaining])
    caption = (
        "Cost of request strategies on unseen subjects, relative to requests of exactly the run "
        "time. Relative to implied: cost of the strategy by image over the cost implied by its "
        "predicted distributions. Remaining excess: excess cost of the strategy by image as a "
        "share of that of one strategy for all"
    )
    head = ["Application and prices", *map(heading, STRATEGIES.values()), "Relative to implied",
            "Remaining excess"]  # fmt: skip
    return Table(caption, head, rows)


def _normalised_cost(replayed: Result) -> str:
    low, high = replayed["normalised_cost_interval"]
    return f"{replayed['normalised_cost']:.2f} ({low:.2f} to {high:.2f})"


def _interval_of(scores: Result | None, key: str) -> str:
    """Write an error with its interval; empty where it is not known."""
    if scores is None or key not in scores:
        return ""
    interval = scores.get(f"{key}_interval")
    if interval is None:
        return percent(scores[key])
    low, high = (percent(max(end, 0.0)) for end in interval)
    return f"{percent(scores[key])} ({low.removesuffix(' %')} to {high})"


def _points_of(difference: Result) -> str:
    """Write a paired difference in points with its interval."""
    interval = difference["interval"]
    bounds = "" if interval is None else f" ({interval[0]:+.1f} to {interval[1]:+.1f})"
    return f"{difference['points']:+.1f}{bounds}"


def _error(scores: Result) -> str:
    return _interval_of(scores, "mape")


def _normalised_error(scores: Result) -> str:
    return _interval_of(scores, "normalised_mape") if "normalised_mape" in scores else ""


MAKERS: dict[str, tuple[Callable[[Result], Table], ...]] = {
    "splits": (_errors, _requests),
    "ablation": (_ablation, _ablation_differences),
    "second_batch": (_second_batch,),
    "real": (_real,),
    "heads": (_heads,),
    "transfer": (_transfer,),
    "per_image": (_per_image,),
}


TEMPLATE = "studies.html.j2"


def read_studies(folder: Path) -> dict[str, Any]:
    """Read the results of the studies in ``folder`` by name; a missing folder gives none.

    Raises
    ------
    TableError
        If a file cannot be read.
    """
    results = {}
    for path in sorted(folder.glob("*.json")):
        try:
            results[path.stem] = read_json(path)
        except (OSError, ValueError) as error:
            raise TableError(f"cannot be read ({error})", path, "run `make studies`") from None
    return results


def studies_page(results: Mapping[str, Any]) -> str:
    """Return the page of the studies as HTML; it lists studies without a result."""
    missing = [name for name in MAKERS if name not in results]
    return render(TEMPLATE, {"study_tables": study_tables(results), "missing": missing})
