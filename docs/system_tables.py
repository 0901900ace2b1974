"""Tables of the service, the pool of work, and jobs on Slurm."""

from __future__ import annotations

from typing import Any

from table_text import NONE, markdown, results


def service_speed() -> str:
    """Return speed and memory of the service beside MLflow's server."""
    figures = results("bench/service.json")
    service, mlflow, bounds = figures["voxcast"], figures["mlflow"], figures["bounds"]
    growth = {name: of["memory_growth"] for name, of in (("v", service), ("m", mlflow))}
    rows = [
        ["ready after its start", *(f"{of['ready_s']:.1f} s" for of in (service, mlflow)), ""],
        ["predictions a second, 32 clients",
         *(f"{of['requests_per_s']:.0f}" for of in (service, mlflow)),
         f"≥ {bounds['requests_per_s']}"],
        ["half of them within", *(f"{of['p50_ms']:.0f} ms" for of in (service, mlflow)), ""],
        ["99 % of them within", *(f"{of['p99_ms']:.0f} ms" for of in (service, mlflow)),
         f"≤ {bounds['p99_ms']} ms"],
        ["memory", *(f"{of['memory_after_bytes'] / 1e6:.0f} MB" for of in (service, mlflow)), ""],
        [f"growth of memory, {service['requests']:,} and {mlflow['requests']:,} requests",
         *(f"{100 * max(value, 0.0):.1f} %" for value in growth.values()),
         f"≤ {100 * bounds['memory_growth']:.0f} %"],
    ]  # fmt: skip
    return markdown(["header only, both on two cores", "voxcast", "MLflow", "allowed"], rows)


def scale_bounds() -> str:
    """Return the bounds of work on a cluster."""
    pool, submission = results("bench/pool.json"), results("bench/submission.json")
    audit = results("bench/audit.json")
    jobs, lines = submission["growth"][-1], audit["growth"][-1]
    claim = max(pool["claims"], key=lambda row: (row["cells"], row["workers"]))
    cell = pool["one_cell"]
    rows = [
        [f"planning and rendering {jobs['jobs']:,} jobs",
         f"{jobs['plan_s'] + jobs['render_s']:.1f} s",
         f"{submission['bound_render_s']:.0f} s"],
        [f"`submit` of that plan in {jobs['arrays']} arrays, with Slurm's `sbatch`; CPU time",
         f"{jobs['submit']['wall_s']:.1f} s; {jobs['submit']['cpu_s']:.1f} s", NONE],
        [f"status of {jobs['jobs']:,} jobs from one call of `sacct`; CPU time; `sacct` alone",
         f"{jobs['status']['wall_s']:.1f} s; {jobs['status']['cpu_s']:.1f} s; "
         f"{jobs['sacct_alone_s']:.1f} s", f"{submission['bound_status_s']:.0f} s"],
        [f"audit of {lines['lines']:,} lines; CPU time; memory at most",
         f"{lines['wall_s']:.0f} s; {lines['cpu_s']:.1f} s; {lines['peak_bytes'] / 1e9:.2f} GB",
         f"{audit['bound_s']:.0f} s; {audit['bound_bytes'] / 1e9:.1f} GB"],
        [f"a claim, {claim['workers']} workers on {claim['cells']:,} cells: median; 95 %",
         f"{claim['claim_ms']:.2f} ms; {claim['claim_95_ms']:.1f} ms",
         f"{pool['bound_claim_ms']:.0f} ms"],
        ["the pool's time for a cell: claim, record, sync, commit",
         _difference_ms(cell["pool_ms"], *cell["pool_ms_least_most"]),
         f"{pool['bound_cell_ms']:.0f} ms"],
        ["measuring beside the run, as without a pool; with a metronome",
         f"{cell['measuring_ms']:.0f} ms; {cell['measuring_with_metronome_ms']:.0f} ms", NONE],
        ["all that a cell takes beside its run; CPU time of the worker for it",
         f"{cell['beside_run_ms']:.0f} ms; {cell['cpu_ms']:.0f} ms", NONE],
    ]  # fmt: skip
    return markdown(["what", "measured", "allowed"], rows)


def _difference_ms(median: float, least: float, most: float) -> str:
    """Write a difference of two measurements; where its rounds differ in sign, it has none."""
    spread = f"{least:.1f} to {most:.1f}"
    return f"within noise ({spread}) ms" if least <= 0 <= most else f"{median:.1f} ms ({spread})"


def soak() -> str:
    """Return what was killed in pools of work, and what became of their cells."""
    rows = []
    for file, place in (
        ("soak", "this machine"), ("kills_1000", "this machine"), ("slurm_kills_1000", "Slurm"),
    ):  # fmt: skip
        of = results(f"soak/{file}.json")
        kills = {name: count for name, count in of["kills"].items() if name != "processes"}
        by_kind = ", ".join(f"{count:,} {name}" for name, count in kills.items())
        rows.append([
            place, f"{of['cells']:,}", by_kind, str(of["taken_back_from_dead_workers"]),
            f"{of['in_the_history']:,}", str(of["lost_or_twice"]),
            str(of["claims_left"] + of["partial_runs_left"]), f"{of['elapsed_s'] / 60:.0f} min",
        ])  # fmt: skip
    head = ["on", "cells", "killed", "cells taken back", "in the history",
            "lost, or there twice", "claims or partial runs left", "took"]  # fmt: skip
    return markdown(head, rows)


def worth_ratios() -> str:
    """Return the ratios of voxcast to the rule, by figure, with intervals over rounds."""
    content = results("worth/rounds.json")
    failed = {arm: [r["attempts"] - r["completed"] for r in content["rounds"] if r["arm"] == arm]
              for arm in ("rule", "voxcast")}  # fmt: skip
    labels = {
        "mean_wait_s": "mean wait", "mean_turnaround_s": "mean turnaround",
        "makespan_s": "makespan", "others_mean_wait_s": "mean wait of others",
        "asked_core_h": "core-hours asked", "held_core_h": "core-hours held",
        "asked_gb_h": "GB-hours asked", "held_gb_h": "GB-hours held",
    }  # fmt: skip
    rows = [[label, _ratio(content["ratios"].get(name))] for name, label in labels.items()]
    attempts = (", ".join(map(str, counts)) for counts in failed.values())
    rows.append(["failed attempts, by round: rule; voxcast", "; ".join(attempts)])
    return markdown(["", "voxcast to the rule"], rows)


def worth_queue() -> str:
    """Return the ratios of ways of asking to the rule in simulated queues, by half."""
    content = results("worth/queue.json")
    bounds = [arm for arm in content["confirm"] if arm.startswith("bound")]
    bounds.sort(key=lambda arm: float(arm.split()[2]))
    titles = {
        "rule": "usual rule: largest × 1.2", "default": "site's default: 2 h, 4 GB",
        "95th percentile": "95th percentile",
        "first allocation": "best first allocation (Tovar et al.)",
        "line": "line in voxels and two standard deviations (Witt et al.)",
        "line × 1.5": "the same, half as much again",
        **{arm: f"voxcast: {arm}" for arm in bounds},
        "clairvoyant": "clairvoyant",
    }  # fmt: skip
    figures = ("asked_core_h", "held_core_h", "makespan_s", "mean_wait_s", "others_mean_wait_s")
    rows = []
    for arm, title in titles.items():
        confirmed = content["confirm"][arm]
        failures = " · ".join(f"{content[half][arm]['failed_attempts']:.1f}"
                              for half in ("choose", "confirm"))  # fmt: skip
        rows.append([title, failures, *(_ratio(confirmed[name]) for name in figures)])
    head = ["", "failed attempts of 100 jobs: half to choose · to confirm", "core-hours asked",
            "core-hours held", "makespan", "mean wait", "mean wait of others"]  # fmt: skip
    return markdown(head, rows)


def residual_laws() -> str:
    """Return how well laws describe residuals of wall time, and the fit of the slow part."""
    laws = ("normal", "student", "two_parts")
    rows = [
        [f"`{app}`", *(f"{fit['log_density'][law]:.2f}" for law in laws),
         f"{100 * fit['slow']['share']:.1f} %", f"{fit['slow']['factor']:.2f}",
         f"{100 * fit['share_above']['1.5']:.1f} %"]
        for app, fit in results("worth/residuals.json").items()
    ]  # fmt: skip
    head = ["log density at other subjects:", "normal", "Student's t", "two parts",
            "share of the slow part", "times as long", "runs above 1.5 × prediction"]  # fmt: skip
    return markdown(head, rows)


def _ratio(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return NONE
    if ratio["interval"] is None:
        return f"{ratio['ratio']:.2f}"
    low, high = ratio["interval"]
    return f"{ratio['ratio']:.2f} ({low:.2f} to {high:.2f})"


def online_sizing() -> str:
    """Return the memory that ways of requesting waste on published workflow traces."""
    rows = results("online/online.json")
    titles = {
        "preset": "presets of the pipelines", "percentile": "95th percentile (Witt et al.)",
        "line_plus_deviation": "line and a standard deviation (Witt et al.)",
        "first_allocation": "best first allocation (Tovar et al.)",
        "plain_rule": "constant or line, times the best factor", "online": "`OnlineSizer`",
    }  # fmt: skip
    workflows = sorted({row["workflow"] for row in rows})
    lines = []
    for method, title in titles.items():
        cells = []
        for workflow in workflows:
            of_method = [r for r in rows if (r["workflow"], r["method"]) == (workflow, method)]
            shuffled = [r["wasted_gb_h"] for r in of_method if r["order"] != "submit"]
            (submitted,) = (r["wasted_gb_h"] for r in of_method if r["order"] == "submit")
            cells.append(f"{sum(shuffled) / len(shuffled):.0f} · {submitted:.0f}")
        lines.append([title, *cells])
    return markdown(["GB h wasted: shuffled · as submitted", *workflows], lines)


def learned_requests() -> str:
    """Return what learning during a submission is worth, on planted submissions."""
    rows = results("online/learned.json")
    columns = ("killed", "requested_over_needed", "cost_over_clairvoyant", "makespan_over_needed")
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        before, after = (
            next(row for row in rows if (row["case"], row["policy"]) == (case, policy))
            for policy in ("planned", "learned")
        )
        lines.append([case, *(f"{before[name]:.2f} → {after[name]:.2f}" for name in columns)])
    head = ["a task takes", "killed, per task", "time requested", "cost", "makespan"]
    return markdown(head, lines)


TABLES = (
    service_speed,
    scale_bounds,
    soak,
    worth_queue,
    worth_ratios,
    residual_laws,
    online_sizing,
    learned_requests,
)
