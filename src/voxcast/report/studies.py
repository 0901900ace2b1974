"""The studies of the recorded history as tables; what was not studied yet is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.report.formatting import TITLES, heading, percent
from voxcast.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Found = Mapping[str, Any]

NAMES = ("splits", "ablation", "second_batch", "real", "scales", "transfer", "per_image")
WHO = {
    "voxcast": "voxcast", "harp_WTM": "HARP, WTM", "harp_MAE": "HARP, MAE",
    "harp_WTM_custom": "HARP custom, WTM", "harp_MAE_custom": "HARP custom, MAE",
    "voxels": "line in voxels", "constant": "constant",
}  # fmt: skip
ASKING = {
    "laboratory": "laboratory's rule", "harp_doubling": "HARP, doubled",
    "population": "optimal, all alike", "per_image": "optimal by image",
}  # fmt: skip
CAMPAIGNS = ("mixed", "full_only", "chosen")
SHOWN_RUNS = (2, 8, 16)


def tables(studies: Mapping[str, Found]) -> list[Table]:
    """Return the tables of those studies that there are, by name of the study."""
    makers = {
        "splits": (_questions, _requests), "ablation": (_ablation,),
        "second_batch": (_second_batch,), "real": (_real,), "scales": (_scales,),
        "transfer": (_transfer,), "per_image": (_per_image,),
    }  # fmt: skip
    made = [make(studies[name]) for name, own in makers.items() if name in studies for make in own]
    return [table for table in made if table.rows]


def _questions(found: Found) -> Table:
    rows = []
    for app, questions in found.items():
        for question, said in questions.items():
            where = f"{app}: unseen {question}"
            if "not_measurable" in said:
                rows.append([where, *[""] * (len(WHO) - 1), said["not_measurable"]])
            else:
                rows.append([where, *(_wall(said.get(who)) for who in WHO)])
    caption = (
        "Mean absolute error of wall time in percent, with 95 % interval over subjects; each is "
        "asked about runs of a kind that it has not seen"
    )
    return Table(caption, ["Application and question", *map(heading, WHO.values())], rows)


def _wall(said: Found | None) -> str:
    return "" if said is None else _error(said["errors"]["runtime_s"])


def _requests(found: Found) -> Table:
    rows = []
    for app, questions in found.items():
        for who, title in WHO.items():
            own = questions.get("subject", {}).get(who, {}).get("request")
            if own:
                over = f"{own['asked_over_used']:.2f}×"
                upp, excess = percent(own["upp"]), percent(own["ov_mape"])
                ours = questions["subject"][who].get("voxcast_at_no_more_risk")
                met = "" if ours is None else _level(ours)
                rows.append([f"{app}: {title}", upp, excess, over, met])
    caption = (
        "What is asked for, on unseen subjects: voxcast's 95 % bound, HARP's adjusted time, and "
        "voxcast's bound at the level that is exceeded no more often than HARP's"
    )
    head = ["", "Asked too little (UPP)", "Excess (OV_MAPE)", "Asked over used",
            "Excess of voxcast at no higher UPP"]  # fmt: skip
    return Table(caption, head, rows)


def _level(own: Found) -> str:
    level = percent(100 * own["level"])
    return f"{percent(own['ov_mape'])} (UPP {percent(own['upp'])}, its {level} bound)"


def _ablation(found: Found) -> Table:
    ways = list(dict.fromkeys(way for own in found.values() for way in own))
    rows = []
    for target in ("cpu_s", "peak_rss_bytes"):
        for app, own in found.items():
            cells = [_error(own[way][target]) if way in own else "" for way in ways]
            rows.append([f"{app}: {TITLES[target]}", *cells])
    caption = (
        "Error by what a model is told, in percent, mean of five cross-validations; HARP's three "
        "axes are the input, the hardware and the application's parameters"
    )
    return Table(caption, ["", *map(heading, ways)], rows)


def _second_batch(found: Found) -> Table:
    return _others("A second batch, whose subjects neither trained, tuned nor calibrated", found)


def _real(found: Found) -> Table:
    return _others("Real heads of other scanners, by what was learned from generated ones", found)


def _others(what: str, found: Found) -> Table:
    rows = []
    for app, own in found.items():
        for target, title in TITLES.items():
            held, sharp = own["coverage"][target], own["sharpness"][target]
            low, high = (100 * end for end in held["interval"])
            rows.append(
                [
                    f"{app}: {title}",
                    _error(own["errors"][target]),
                    f"{held['covered']} of {held['subjects']} ({low:.0f} to {high:.0f} %)",
                    " · ".join(str(part["covered"]) for part in held["by_quartile"]),
                    f"{sharp['asked_over_used']:.2f}×",
                    f"{sharp['one_request_asked_over_used']:.2f}×",
                ]
            )
    caption = (
        f"{what}: subjects below the 95 % bound with exact interval, runs by quartile of what was "
        "measured, and what is asked for"
    )
    head = [
        "",
        "Error",
        "Below the bound",
        "By quartile",
        "Asked over used",
        "One request for all",
    ]
    return Table(caption, head, rows)


def _scales(found: Found) -> Table:
    rows = []
    for app, own in found.items():
        if "not_measurable" in own:
            continue
        cells = [
            f"{_error(own[way]['cpu_s'])} for {percent(100 * own[way]['cost_share'])} of the cost"
            for way in ("all", *CAMPAIGNS)
        ]
        ratios = [own[way]["cpu_s"]["mape"] / own["all"]["cpu_s"]["mape"] for way in CAMPAIGNS]
        rows.append([app, *cells, " · ".join(f"{ratio:.2f}×" for ratio in ratios)])
    caption = (
        "Error of CPU time at full scale, by what the campaign was spent on: runs drawn at "
        "random, or those expected to teach most"
    )
    head = ["Application", "All at full scale", "Half scaled down", "Full scale, drawn",
            "Full scale, chosen", "Over all"]  # fmt: skip
    return Table(caption, head, rows)


def _transfer(found: Found) -> Table:
    rows = []
    for pair, curve in found.items():
        for point in curve:
            if point["runs"] in SHOWN_RUNS:
                said = [percent(point[who]) for who in ("cold", "transferred", "pooled")]
                rows.append([pair, str(point["runs"]), f"{point['cost_s']:.0f} s", *said])
    caption = (
        "A history of one network for another: median error of CPU time after so many runs of the "
        "other, whose CPU time is their cost"
    )
    head = ["From and to", "Runs", "Cost", "Without it", "Corrected by one factor", "One model"]
    return Table(caption, head, rows)


def _per_image(found: Found) -> Table:
    rows = []
    for app, own in found.items():
        for name, said in own.items():
            if name in ("sd_log", "not_measurable"):
                continue
            costs = [_normalised(said["ways"][way]) for way in ASKING]
            left = percent(100 * said["excess_left"])
            rows.append([f"{app}, {name}", *costs, f"{said['over_implied']:.2f}×", left])
    caption = (
        "What requests cost, over the cost of who knows beforehand, replayed on unseen subjects; "
        "by image over what its own laws imply, and what is left of the population's excess"
    )
    head = ["Application and prices", *map(heading, ASKING.values()), "Over implied",
            "Excess left"]  # fmt: skip
    return Table(caption, head, rows)


def _normalised(own: Found) -> str:
    low, high = own["normalised_cost_interval"]
    return f"{own['normalised_cost']:.2f} ({low:.2f} to {high:.2f})"


def _error(own: Found) -> str:
    ends: Sequence[float] | None = own.get("mape_interval")
    if ends is None:
        return percent(own["mape"])
    low, high = (percent(max(end, 0.0)) for end in ends)
    return f"{percent(own['mape'])} ({low.removesuffix(' %')} to {high})"
