"""Tables of docs/phases.md: planted phases recovered, and growth."""

from __future__ import annotations

from typing import Any

from table_text import NONE, markdown, results

FILE = "bench/phases.json"


def phases_recovered() -> str:
    """Return the phases by number of processes, by SIMO and by mean order."""
    rows = []
    for row in results(FILE)["recovered"]:
        phases, rand = row["phases"], row["rand"]
        rows.append([
            str(row["processes"]), str(row["planted"]), _counts(phases["mean_order_all"]),
            _scores(rand["mean_order"]), _counts(phases["simo_all"]), _counts(phases["simo"]),
            _scores(rand["simo"]), _counts(phases["exact_all"]),
        ])  # fmt: skip
    head = ["processes", "planted", "mean order", "Rand index", "SIMO ±1",
            "of these 1 % or more", "Rand index", "exact counts"]  # fmt: skip
    return markdown(head, rows)


def phases_contrast() -> str:
    """Return how well two phases are told apart, by their difference and the jitter."""
    contrasts = results(FILE)["contrast"]
    rows = [
        [f"{1 + row['percent'] / 100:g}", *(_scores(scores) for scores in row["rand"])]
        for row in contrasts
    ]
    jitters = [f"jitter {100 * scores['jitter']:.0f} %" for scores in contrasts[0]["rand"]]
    return markdown(["times the computation", *jitters], rows)


def phases_growth() -> str:
    """Return rates, times and memory by number of ticks and events."""
    figures = results(FILE)
    bound = f"{figures['bound_ticks_a_second'] / 1e6:.0f} million ticks/s"
    rows = [
        [f"grouping {row['ticks']:,} ticks; with communication",
         f"{row['ticks_a_second'] / 1e6:.0f}; {row['with_communication_a_second'] / 1e6:.0f} "
         "million ticks/s", f"{row['peak_bytes'] / 1e9:.2f} GB", bound]
        for row in figures["grouping"]
    ]  # fmt: skip
    for row in figures["ordering"]:
        is_million = row["events"] // 10**6 == 1
        allowed = (f"{figures['bound_events_s']:.0f} s and "
                   f"{figures['bound_events_bytes'] / 1e9:.0f} GB, reading included")  # fmt: skip
        rows.append([
            f"{row['events']:,} events of 8 processes into {row['ticks']:,} ticks; into phases",
            f"{row['logical_s']:.2f} s; {row['phases_s']:.2f} s",
            f"{row['peak_bytes'] / 1e9:.2f} GB", allowed if is_million else NONE,
        ])  # fmt: skip
    return markdown(["what", "CPU time", "memory", "allowed"], rows)


def _counts(counts: dict[str, Any]) -> str:
    if counts["least"] == counts["most"]:
        return f"{counts['median']:.0f}"
    return f"{counts['median']:g} ({counts['least']} to {counts['most']})"


def _scores(scores: dict[str, Any]) -> str:
    # Adding zero makes a rounded minus zero a zero.
    least, median, most = (
        f"{round(scores[name], 2) + 0.0:.2f}" for name in ("least", "median", "most")
    )
    return median if least == most else f"{median} ({least} to {most})"


TABLES = (phases_recovered, phases_contrast, phases_growth)
