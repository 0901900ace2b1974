"""Tables of docs/phases-memory.md and docs/phases-apps.md."""

from __future__ import annotations

from typing import Any

from table_text import markdown, percent, results, with_interval

MEMORY, PER_PHASE = "phases/memory.json", "phases/per_phase.json"


def _share(value: dict[str, float]) -> str:
    low, high = max(value["low"], 0.0), min(value["high"], 1.0)
    return f"{100 * value['value']:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _rates(part: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name.removeprefix("every_"), row)
        for name, row in part.items()
        if name.startswith("every_")
    ]


def phases_logged() -> str:
    """Phases read from traces against those that the applications logged."""
    rows = [
        [
            f"`{app}`", f"{row['runs']}", f"{row['step_s']:.1f} s",
            f"{row['error_s']['median']:.2f} s", f"{row['error_s']['quantile_90']:.2f} s",
            _share(row["within_two_steps"]), _share(row["share_of_time_right"]),
        ]
        for app, part in results(MEMORY).items()
        if "phases" in part
        for _, row in _rates(part)
    ]  # fmt: skip
    head = ["application", "runs", "between samples", "error of a boundary: median", "90 %",
            "within two samples", "time in the right phase"]  # fmt: skip
    return markdown(head, rows)


def phases_slant() -> str:
    """The seven tasks of the SLANT runs."""
    part = results(MEMORY)["slant"]
    rows = [
        [
            f"{30 * int(every)} s", f"{row['runs_right']} of {part['runs']}",
            _share(row["all_boundaries_within_a_minute"]),
            f"{100 * row['within_a_sample']:.0f} %", f"{row['error_s']['median']:.0f} s",
            f"{row['error_s']['quantile_90']:.0f} s", _share(row["share_of_time_right"]),
        ]
        for every, row in _rates(part)
    ]  # fmt: skip
    head = ["between samples", "all six boundaries within a minute", "share of runs",
            "within a sample", "error: median", "90 %", "time in the right task"]  # fmt: skip
    return markdown(head, rows)


def phases_methods() -> str:
    """This model beside the methods before it."""
    file = results(MEMORY)
    slant = file["slant"]
    earlier, few = file["earlier_methods"], "slant_by_number_of_logged_runs"
    methods = [earlier["semi_markov"], earlier["change_points"]]
    rows = [
        [f"SLANT runs right, a sample every {seconds} s",
         *(f"{method['slant_runs_right'][every]} of {slant['runs']}" for method in methods),
         f"{slant[every]['runs_right']} of {slant['runs']}"]
        for seconds, every in ((30, "every_1"), (60, "every_2"))
    ]  # fmt: skip
    rows.append([
        "SLANT, median error of a boundary, a sample every 30 s",
        *(f"{method['slant_median_error_s']:.0f} s" for method in methods),
        f"{slant['every_1']['error_s']['median']:.0f} s",
    ])  # fmt: skip
    for number in methods[0][few]:
        row = slant["by_number_of_logged_runs"][number]
        shares = [*(method[few][number] for method in methods), row["median"]]
        runs = "one logged run" if number == "1" else f"{number} logged runs"
        rows.append([f"SLANT, {runs}", *(f"{100 * share:.0f} %" for share in shares)])
    for app in methods[0]["share_of_time_right"]:
        shares = [*(method["share_of_time_right"][app] for method in methods),
                  file[app]["every_1"]["share_of_time_right"]["value"]]  # fmt: skip
        label = "SLANT" if app == "slant" else f"`{app}`"
        rows.append([f"{label}, time in the right phase",
                     *(f"{100 * share:.1f} %" for share in shares)])  # fmt: skip
    head = ["", "model with weight 1", "similar change points", "this model"]
    return markdown(head, rows)


def phases_settings() -> str:
    """Settings tried within either half of the subjects."""
    rows = [
        [
            f"{row['bins']}", f"{row['weight']:g}",
            *(f"{100 * share:.2f} %{', best' if half in row['best_in_halves'] else ''}"
              for half, share in enumerate(row["share_of_time_right_by_half"])),
        ]
        for row in results(MEMORY)["settings"]
    ]  # fmt: skip
    return markdown(["bins", "weight of a signal", "one half", "the other half"], rows)


def phases_teachers() -> str:
    """How many logged runs suffice for SLANT."""
    by_number = results(MEMORY)["slant"]["by_number_of_logged_runs"]
    names = ("median", "quantile_10", "quantile_90")
    rows = [
        [number, *(f"{100 * row[name]:.0f} %" for name in names)]
        for number, row in sorted(by_number.items(), key=lambda pair: int(pair[0]))
    ]  # fmt: skip
    return markdown(["logged runs", "median of draws", "10 % of draws", "90 % of draws"], rows)


def phases_alone() -> str:
    """Change points of single SLANT runs."""
    part = results(MEMORY)["slant"]["alone"]
    shares = [f"{100 * share:.0f} %" for share in part["share_by_boundary"]]
    head = ["boundaries with a change point", *(f"{n} to {n + 1}" for n in range(1, 7)),
            "change points of a run"]  # fmt: skip
    points = f"{part['mean_change_points']:.1f}"
    return markdown(head, [[_share(part["boundaries_with_a_change_point"]), *shares, points]])


def phases_summed() -> str:
    """Predictions by phase against those of the run."""
    rows = []
    for app, part in results(PER_PHASE).items():
        for family, ways in part["families"].items():
            for target, label in (("cpu_s", "CPU time"), ("runtime_s", "wall time"),
                                  ("peak_rss_bytes", "memory")):  # fmt: skip
                difference = ways["difference"][target]
                low, high = difference["interval"]
                rows.append([
                    f"`{app}`", f"`{family}`", label, with_interval(ways["run"][target]),
                    with_interval(ways["sum_of_phases"][target]),
                    f"{difference['points']:+z.2f} ({low:+z.2f} to {high:+z.2f})",
                ])  # fmt: skip
    head = ["application", "family", "", "run", "sum of phases", "difference, points"]
    return markdown(head, rows)


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


TABLES = (
    phases_logged, phases_methods, phases_settings, phases_slant, phases_teachers, phases_alone,
    phases_summed, phases_parallel,
)  # fmt: skip
