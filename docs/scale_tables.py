"""Tables of docs/scale.md: bounds of work on a cluster, and their growth."""

from __future__ import annotations

from typing import Any

from table_text import NONE, markdown, results


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


def scale_machine() -> str:
    """Return when and on what the figures of scale were measured."""
    rows = []
    for name in ("pool", "submission", "audit"):
        of = results(f"bench/{name}.json")["machine"]
        rows.append([
            f"`published/bench/{name}.json`", of["measured_at"][:16].replace("T", " "),
            str(of["cores"]), f"{of['load_1_min']:.1f}", of["disk"],
        ])  # fmt: skip
    return markdown(["file", "measured (UTC)", "cores", "load before", "disk"], rows)


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


def scale_claims() -> str:
    """Return the growth of claims with cells and workers."""
    claims = results("bench/pool.json")["claims"]
    rows = [
        [f"{row['cells']:,}", str(row["workers"]), str(row["claims"]),
         *(f"{row[name]:.2f} ms" for name in
           ("claim_ms", "claim_95_ms", "rename_ms", "rename_95_ms"))]
        for row in claims
    ]  # fmt: skip
    head = ["cells", "workers", "claims", "median", "95 %", "a plain rename beside it", "95 %"]
    return markdown(head, rows)


def scale_growth() -> str:
    """Return the growth with cells of the pool, with jobs, and with lines of accounting."""
    pool, jobs = results("bench/pool.json")["growth"], results("bench/submission.json")["growth"]
    audits, rows = results("bench/audit.json")["growth"], []
    sources: tuple[tuple[str, list[dict[str, Any]], str, Any], ...] = (
        ("making a pool, CPU", pool, "cells", lambda row: row["made_cpu_s"]),
        ("a worker's first look, CPU", pool, "cells", lambda row: row["look_cpu_s"]),
        ("its look again, CPU", pool, "cells", lambda row: row["look_again_cpu_s"]),
        ("`submit`, CPU", jobs, "jobs", lambda row: row["submit"]["cpu_s"]),
        ("`status`, CPU", jobs, "jobs", lambda row: row["status"]["cpu_s"]),
        ("`sacct` alone", jobs, "jobs", lambda row: row["sacct_alone_s"]),
        ("`audit`, CPU", audits, "lines", lambda row: row["cpu_s"]),
    )
    for name, growth, size, seconds in sources:
        times = "; ".join(f"{seconds(row):.3g} s" for row in growth)
        sizes = "; ".join(f"{row[size]:,}" for row in growth)
        small, large = growth[0] if len(growth) == 1 else growth[-2], growth[-1]
        if small is large:
            rows.append([name, f"{sizes} {size}", times, NONE])
            continue
        factor = (seconds(large) - seconds(small)) / (large[size] - small[size])
        rows.append([name, f"{sizes} {size}", times, f"{1e6 * factor:.3g} s"])
    memory = [row["memory_bytes"] / 1e6 for row in pool]
    each = (memory[-1] - memory[-2]) / (pool[-1]["cells"] - pool[-2]["cells"])
    rows.append([
        "memory of a worker", "; ".join(f"{row['cells']:,}" for row in pool) + " cells",
        "; ".join(f"{m:.3g} MB" for m in memory), f"{1e6 * each:.3g} MB",
    ])  # fmt: skip
    return markdown(["what", "for", "measured", "a million more"], rows)


def scale_images() -> str:
    """Return what a million images take, from figures of one core."""
    bench, jobs = results("bench/bench.json"), results("bench/submission.json")["growth"][-1]
    images, volume = 1e6, bench["volume"]
    answer = bench["recommend"]
    rate = min(bench["bulk"]["rows_a_second"].values())
    read_ms = volume["load_ms"] * (1 + volume["characteristics_over_load"])
    one_row_ms = bench["predict"]["header_row_ms"]
    requests_s = bench["requests"]["images_100000_s"] * images / 1e5
    rows = [
        ["reading headers", f"{volume['header_ms']:.1f} ms",
         f"{volume['header_ms'] * images / 3.6e6:.1f} core-hours"],
        ["loading voxels and describing them, 256³", f"{read_ms:.0f} ms",
         f"{read_ms * images / 3.6e6:.0f} core-hours"],
        ["predictions in bulk, slowest of four", f"{rate:,.0f} rows a second",
         f"{images / rate:.0f} s a configuration"],
        ["predictions one by one, from headers, in one process", f"{one_row_ms:.1f} ms",
         f"{one_row_ms * images / 3.6e6:.1f} h; {1000 / one_row_ms:.0f} a second"],
        ["from features to recommendations",
         f"{answer['features_to_answer_s']:.1f} s for {answer['images']:,}",
         f"{answer['features_to_answer_s'] * images / answer['images']:.0f} s"],
        ["optimal sequences of requests", f"{requests_s / images * 1e6:.0f} µs",
         f"{requests_s:.0f} s"],
        [f"planning and rendering, per {jobs['jobs']:,} jobs",
         f"{jobs['plan_s'] + jobs['render_s']:.1f} s",
         f"{(jobs['plan_s'] + jobs['render_s']) * images / jobs['jobs'] / 60:.0f} min, "
         f"{images / 1000:,.0f} arrays or more"],
        ["rows of the campaign's history: read and summarised",
         f"{bench['campaign']['cells']['summarise']['first_s']:.1f} s for 10,000",
         f"{bench['campaign']['cells']['summarise']['first_s'] * images / 1e4:.0f} s"],
    ]  # fmt: skip
    return markdown(["step", "measured", "for a million"], rows)


TABLES = (scale_bounds, scale_machine, soak, scale_claims, scale_growth, scale_images)
