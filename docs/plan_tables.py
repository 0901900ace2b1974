"""The table of docs/cluster-plan.md."""

from __future__ import annotations

from table_text import markdown, results


def plans() -> str:
    """Return makespan and core-hours of planned jobs beside those of simple ways."""
    ways = ("planned", "one_core_a_job", "whole_nodes")
    rows = []
    for row in results("plan/simulation.json")["rows"]:
        cells = [
            f"{row['cells']:,}",
            f"{row['job_start_s']:g} s",
            f"{row['bound_s'] / 3600:.2f} h",
        ]
        for name in ways:
            drawn = row["ways"][name]["drawn"]["0.3"]
            low, high = min(drawn["makespan_s"]) / 3600, max(drawn["makespan_s"]) / 3600
            hours, core_h = drawn["median_makespan_s"] / 3600, drawn["median_core_h"]
            cells.append(f"{hours:.2f} h ({low:.2f} to {high:.2f}); {core_h:,.0f}")
        rows.append([*cells, f"{row['ways']['planned']['jobs']:,}"])
    head = ["cells", "start of a job", "lower bound", "planned", "one core a job", "whole nodes",
            "planned jobs"]  # fmt: skip
    return markdown(head, rows)


TABLES = (plans,)
