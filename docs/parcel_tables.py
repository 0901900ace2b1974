"""Tables of docs/parcel-study.md."""

from __future__ import annotations

from table_text import NONE, markdown, results, with_interval


def parcel_cache() -> str:
    """What the cache saved in a parcel study."""
    both = results("parcel_study/parcel_study.json")["cache"]
    rows = [
        [
            f"{label} the cache", f"{part['volumes_read']}", f"{part['cpu_s']:.0f} s",
            f"{part['volumes_read_by_ensembles']}", f"{part['cpu_s_of_ensembles']:.0f} s",
            f"{100 * part['hit_rate']:.0f} %" if "hit_rate" in part else NONE,
        ]
        for label, part in ((label, both[label]) for label in ("without", "with"))
    ]  # fmt: skip
    fits, ensembles = both["with"]["runs"], both["with"]["ensembles"]
    head = ["", f"volumes read by {fits} fits", "CPU time", f"by {ensembles} ensembles",
            "CPU time", "hit rate"]  # fmt: skip
    return markdown(head, rows)


def parcel_ensembles() -> str:
    """R² of the ensembles and of their members, out of fold."""
    part = results("parcel_study/parcel_study.json")["cache"]["with"]
    members = [f"{value:.2f}" for value in part["r_squared_members"]]
    names = [f"member {number}" for number in range(1, len(members) + 1)]
    combined = part["r_squared"]
    return markdown(
        [*names, *sorted(combined)],
        [[*members, *(f"{combined[name]:.2f}" for name in sorted(combined))]],
    )


def parcel_passes() -> str:
    """What workers of two sizes did in one pool."""
    part = results("parcel_study/parcel_study.json")["passes"]
    rows = [
        [
            str(number), f"{row['workers']} of {row['memory_bytes'] / 1e9:.2g} GB",
            f"{row['recorded']} of {part['cells']}", str(row["left"]), str(row["given_up"]),
        ]
        for number, row in enumerate(part["passes"], 1)
    ]  # fmt: skip
    return markdown(["pass", "workers", "recorded", "left", "given up"], rows)


def parcel_cores() -> str:
    """Measured times of a parcel study by cores."""
    rows = [
        [
            f"{row['pipeline']}, {row['parcels']} parcels, {row['target']}", str(row["cpus"]),
            f"{row['runtime_s']:.1f} s", f"{row['cpu_s']:.1f} s",
        ]
        for row in results("parcel_study/parcel_study.json")["cores"]
    ]  # fmt: skip
    return markdown(["fit", "CPUs", "wall time", "CPU time"], rows)


def parcel_models() -> str:
    """Spread of a parcel study's runs, and errors on parameters that were never measured."""
    content = results("parcel_study/parcel_study.json")
    spread, errors = content["spread"], content["models"]["errors"]
    rows = []
    for target, label, unit, scale in (
        ("cpu_s", "CPU time", "s", 1.0), ("peak_rss_bytes", "memory", "MB", 1e6)
    ):  # fmt: skip
        values = spread[target]
        low, high = values["min"] / scale, values["max"] / scale
        rows.append([
            label, f"{low:.3g} to {high:,.{1 if high < 100 else 0}f} {unit}",
            f"{values['high_over_low']:.0f}",
            *(
                with_interval(errors[name][target])
                for name in ("voxcast", "parameter_effects", "constant")
            ),
        ])  # fmt: skip
    head = [f"{spread['runs']} runs", "range", "highest over lowest", "voxcast, MAPE",
            "effects of parameters alone", "a constant"]  # fmt: skip
    return markdown(head, rows)


def parcel_slurm() -> str:
    """Makespan and core-hours of the same cells on a private Slurm, by the way they are run."""
    content = results("parcel_study/slurm.json")
    labels = {"one_core_a_job": "one core a job", "whole_nodes": "whole nodes"}
    rows = []
    for name, label in labels.items():
        rounds = [content["arms"][name][number] for number in sorted(content["arms"][name])]
        failed = sum(
            count for figures in rounds for outcome, count in figures["outcomes"].items()
            if outcome != "completed"
        )  # fmt: skip
        rows.append([
            label, _each(rounds, "jobs"),
            _each(rounds, "makespan_s", "s"),
            _each(rounds, "mean_wait_s", "s"),
            *(_each(rounds, f"{kind}_core_h", digits=2) for kind in ("asked", "held", "cpu")),
            str(failed),
        ])  # fmt: skip
    head = [f"{content['cells']} cells", "jobs", "makespan", "mean wait of a cell",
            "core-hours asked", "held", "CPU time, h", "failed"]  # fmt: skip
    return markdown(head, rows)


def _each(rounds: list[dict[str, float]], name: str, unit: str = "", digits: int = 0) -> str:
    """Write a figure of each round; once where it is the same in all."""
    values = list(dict.fromkeys(f"{figures[name]:,.{digits}f}" for figures in rounds))
    return f"{', '.join(values)} {unit}".rstrip()


def parcel_pool() -> str:
    """What the passes of workers on a private Slurm did in one pool."""
    pool = results("parcel_study/slurm.json")["pool"]
    rows = []
    for number, workers in enumerate(pool["passes"], 1):
        size = f"{workers['cpus']} CPU{'s' if workers['cpus'] > 1 else ''}"
        rows.append([
            f"{number}, {'pilot' if number <= pool['pilot_passes'] else 'larger cells'}",
            f"{workers['workers']} of {size}, {workers['memory_bytes'] / 1e9:.2g} GB, "
            f"{workers['walltime_s']:.0f} s",
            *(str(workers[name]) for name in ("recorded", "failed", "split")),
        ])  # fmt: skip
    rows += [
        ["joined", f"{run['parts']} parts, one run of {run['runtime_s']:.0f} s", *[NONE] * 3]
        for run in pool["joined"]
    ]
    head = ["pass", "workers", "runs recorded", "attempts failed", "cells split"]
    return markdown(head, rows)


TABLES = (
    parcel_cache,
    parcel_ensembles,
    parcel_passes,
    parcel_cores,
    parcel_models,
    parcel_slurm,
    parcel_pool,
)
