"""Tables of docs/phases-memory.md and docs/phases-apps.md."""

from __future__ import annotations

from table_text import markdown, percent, results, with_interval

PER_PHASE = "phases/per_phase.json"


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


TABLES = (phases_summed, phases_parallel)
