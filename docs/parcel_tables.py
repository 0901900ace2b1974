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
            label, f"{low:.3g} to {high:.3g} {unit}", f"{values['high_over_low']:.2g}",
            *(
                with_interval(errors[name][target])
                for name in ("voxcast", "parameter_effects", "constant")
            ),
        ])  # fmt: skip
    head = [f"{spread['runs']} runs", "range", "highest over lowest", "voxcast, MAPE",
            "effects of parameters alone", "a constant"]  # fmt: skip
    return markdown(head, rows)
