"""Tables of parallel programs and their signatures."""

from __future__ import annotations

from typing import Any

from table_text import NONE, markdown, percent, results

FILE = "phases/signature.json"


APPS = ("ddp_train", "kmeans_mpi", "pinn_mpi")


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


def _heads() -> list[str]:
    return [f"`{app}`" for app in APPS]


def _cells(figures: dict[str, Any]) -> list[str]:
    return [
        f"{percent(100 * figures[app]['mean'])} (to {percent(100 * figures[app]['most'])})"
        if app in figures else NONE for app in APPS
    ]  # fmt: skip


def _signed(error: float) -> str:
    return f"{100 * error:+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0")


def phases_parallel() -> str:
    """Predicted wall time of parallel applications on workloads that were not measured."""
    rows = []
    for app, part in results("phases/parallel_prediction.json").items():
        chosen, constant = part["chosen"], part["constant"]
        medians_s = [
            f"{row['median']:.1f} s ({row['processes']} × {row['threads']})"
            for row in part["runtime_s"]
        ]
        rows.append([
            f"`{app}`", f"{part['runs']}", ", ".join(medians_s), f"`{part['family']}`",
            percent(chosen["mape"]), percent(constant["mape"]),
            f"{100 * chosen['coverage']:.0f} %",
        ])  # fmt: skip
    head = ["application", "runs", "median (processes × threads)", "model", "error",
            "error of the median", "below the 90 % bound"]  # fmt: skip
    return markdown(head, rows)


TABLES = (signature_prefix, signature_rivals, signature_transfer, phases_parallel)
