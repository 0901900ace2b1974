"""Tables of docs/phases.md: signatures, predictions from the first part, transfers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from table_text import NONE, markdown, percent, results

FILE = "phases/signature.json"
APPS = ("ddp_train", "kmeans_mpi", "pinn_mpi")


def signature_counts() -> str:
    """Return the number of phases by method, application and number of processes."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in results(FILE)["table_3"]:
        groups[row["app"], row["processes"]].append(row)
    rows = [
        [f"`{app}`", str(processes), str(len(of_group)), _range(r["ticks"] for r in of_group),
         *(_range(r[method]["all"] for r in of_group) for method in ("exact", "simo")),
         _range(r["simo"]["large"] for r in of_group),
         _range(r["mean_order"]["large"] for r in of_group),
         _shares(r["communication_share"] for r in of_group),
         _shares(r["computation_share"] for r in of_group)]
        for (app, processes), of_group in sorted(groups.items())
    ]  # fmt: skip
    head = ["application", "processes", "runs", "ticks", "exact times", "SIMO ±1",
            "of these 1 % or more", "mean order, 1 % or more", "communication",
            "computation"]  # fmt: skip
    return markdown(head, rows)


def signature_totals() -> str:
    """Return the error of the total by representative time."""
    by_way = results(FILE)["totals"]
    order = ("mean", "median", "trimmed mean", "mean of 1 passes", "mean of 3 passes",
             "mean of 10 passes")  # fmt: skip
    rows = [[name.replace("1 passes", "1 pass"), *_cells(by_way[name])] for name in order]
    return markdown(["time of a phase", *_heads()], rows)


def signature_prefix() -> str:
    """Return the error of predictions from the first part, by share and way."""
    by_share = results(FILE)["prefix"]
    rows = []
    for share, figures in by_share.items():
        first = f"first {100 * float(share):.0f} %"
        rows.append([first, "of the whole run", *_cells(figures["total"])])
        rows.append([first, "of what was to come", *_cells(figures["ahead"])])
    others = by_share["0.2"]["others"]
    names = ("median tick", "trimmed mean", "second half", "proportional")
    rows += [["first 20 %", f"of the whole run, {name}", *_cells(others[name])] for name in names]
    return markdown(["known", "error", *_heads()], rows)


def signature_coverage() -> str:
    """Return how often the intervals hold."""
    content = results(FILE)
    rows = []
    for share, figures in content["prefix"].items():
        for name, held in figures["coverage"].items():
            if not held["runs"]:
                continue
            low, high = held["coverage_95"]
            rows.append([
                f"first {100 * float(share):.0f} %", name, f"{held['held']} of {held['runs']}",
                f"{100 * low:.0f} to {100 * high:.0f} %",
                f"± {percent(100 * held['median_half_width'])}",
            ])  # fmt: skip
    level = f"held at {100 * content['level']:.0f} %"
    return markdown(["known", "interval", level, "95 % interval of that", "median width"], rows)


def signature_rivals() -> str:
    """Return the errors of models that predict a run before it starts."""
    rows = [[name, *_cells(figures)] for name, figures in results(FILE)["rivals"].items()]
    return markdown(["way", *_heads()], rows)


def signature_transfer() -> str:
    """Return predicted and measured times on the slowed machine."""
    ways = {"one_core": "one core", "load": "a load on both cores",
            "quota": "half of the CPU time"}  # fmt: skip
    rows = [
        [f"`{row['app']}`", ways[row["way"]], f"{row['base_s']:.2f} s", f"{row['short_s']:.2f} s",
         f"{row['predicted_s']:.2f} s ({row['lower_s']:.2f} to {row['upper_s']:.2f})",
         f"{row['measured_s']:.2f} s", _signed(row["error"]), _signed(row["error_by_mean_tick"]),
         _signed(row["error_unscaled"])]
        for row in results(FILE)["transfer"]
    ]  # fmt: skip
    head = ["application", "slowed by", "base", "short run there", "predicted at 90 %",
            "measured", "error", "by the mean tick", "without a run there"]  # fmt: skip
    return markdown(head, rows or [[NONE] * len(head)])


def changing_cycles() -> str:
    """Return how predictions and transfers of planted runs do whose cycles change."""
    content = results("phases/changing_cycles.json")
    rows = []
    for figures in content["programs"]:
        part, elsewhere = figures["prediction"], figures["transfer"]
        rows.append([
            figures["cycles"], str(part["intervals"]),
            f"{part['held']} of {part['intervals']}" if part["intervals"] else NONE,
            f"{_signed(part['median_error'])} ({_signed(part['largest_error'])})",
            f"{elsewhere['held']} of {elsewhere['intervals']}",
            f"{_signed(elsewhere['median_error'])} ({_signed(elsewhere['largest_error'])})",
        ])  # fmt: skip
    head = ["cycles", f"have an interval, of {content['runs']}", "held at 90 %",
            "error, median (largest)", "transfer: held at 90 %", "error"]  # fmt: skip
    return markdown(head, rows)


def _heads() -> list[str]:
    return [f"`{app}`" for app in APPS]


def _cells(figures: dict[str, Any]) -> list[str]:
    return [
        f"{percent(100 * figures[app]['mean'])} (to {percent(100 * figures[app]['most'])})"
        if app in figures else NONE for app in APPS
    ]  # fmt: skip


def _range(values: Any) -> str:
    counts = sorted(values)
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _shares(values: Any) -> str:
    shares = 100 * np.array(list(values))
    return f"{shares.mean():.0f} %"


def _signed(error: float) -> str:
    return f"{100 * error:+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0")


TABLES = (
    signature_counts, signature_totals, signature_prefix, signature_coverage, signature_rivals,
    signature_transfer, changing_cycles,
)  # fmt: skip
