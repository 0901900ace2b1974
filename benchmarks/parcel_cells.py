"""The cells of `parcel_slurm`, the project in which they are run, and what is asked for them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voxcast.project import PROJECT_FILE

REPOSITORY = Path(__file__).parents[1]
IMAGES = REPOSITORY / "data/campaigns/parcel_study/images"
CAMPAIGN, CLUSTER = "parcels", "laboratory"
PARTITION, SHORT = "debug", "short"  # without a limit, and with one of two minutes
# Runs a cell whose parameters are in a file, so that `voxcast submit` takes it as its input.
APP = "parcel_cell"
PROGRAM = """import sys
from pathlib import Path
from voxcast_apps.parcel_study import main
cell, out, threads = sys.argv[1:]
main(["--out", out, "--threads", threads, "--parameters", Path(cell).read_text()])
"""
SEED = 29
PILOT_SEED = 1  # of the parcellation by which a kind of cells is measured; cells have others
CPUS = (1, 2)
NODE_BYTES = 6000 * 2**20
UPPER = 1.5  # over what the pilot took
# The pilot's memory is that of its control group. Slurm samples resident pages: shared libraries
# count for each process.
MEMORY_MARGIN = 2.5
STEP_S = 60.0  # in which Slurm counts time limits


@dataclass(frozen=True)
class Kind:
    """Cells that differ by the seed of their parcellation only."""

    pipeline: str
    parcels: int
    target: str
    cells: int

    def parameters(self, seed: int) -> dict[str, Any]:
        """Return the parameters of a cell."""
        fields = asdict(self) | {"seed": seed, "images": str(IMAGES)}
        return {name: value for name, value in fields.items() if name != "cells"}


# Many short cells and few long ones, as in a study of this kind.
KINDS = (
    Kind("elastic_net", 50, "gamma", 60),
    Kind("support_vectors", 100, "gamma", 60),
    Kind("elastic_net", 200, "scale", 30),
    Kind("boosting", 200, "gamma", 30),
    Kind("boosting", 400, "scale", 12),
    Kind("boosting", 400, "bias", 4),
)
# What the pool measures after the pilot: cells like it; one that needs more memory than any of
# the pilot took; one that outlasts the two minutes of a worker, in 24 folds.
USUAL_SEEDS = (101, 102, 103)
LARGE: dict[str, Any] = {
    "parcels": 700, "features": "pairs", "pipeline": "elastic_net", "target": "gamma", "folds": 2,
}  # fmt: skip
LONG: dict[str, Any] = {"parcels": 400, "pipeline": "boosting", "target": "bias", "folds": 24}


def cells(count: int | None = None) -> list[tuple[Kind, int]]:
    """Return kind and seed of the cells in a drawn order; the first `count` of them."""
    first = PILOT_SEED + 1
    everything = [(kind, seed) for kind in KINDS for seed in range(first, first + kind.cells)]
    random.Random(SEED).shuffle(everything)  # noqa: S311
    return everything[:count]


def write_project(folder: Path, python: str) -> None:
    """Write a project with the application and the cluster."""
    import yaml

    shutil.copytree(REPOSITORY / "conf", folder / "conf")
    # Empty, so that no submission is collected: cells are no images from which a model can learn.
    (folder / PROJECT_FILE).touch()
    app = {"version": "1", "argv": [python, "-P", "-c", PROGRAM, "{image}", "{out}", "{threads}"]}
    _write_app(folder, app)
    cluster = yaml.safe_load((REPOSITORY / "conf/cluster/private.yaml").read_text())
    (node,) = cluster["node_types"].values()
    node |= {"cores": max(CPUS), "memory": f"{NODE_BYTES}B"}
    cluster["node_types"] = {n: node | {"partition": n} for n in (PARTITION, SHORT)}
    limits = {PARTITION: None, SHORT: "2min"}
    (partition,) = cluster["partitions"].values()
    cluster["partitions"] = {n: partition | {"max_walltime": t} for n, t in limits.items()}
    (folder / "conf" / "cluster" / f"{CLUSTER}.yaml").write_text(yaml.safe_dump(cluster))


def _write_app(folder: Path, app: Mapping[str, Any]) -> None:
    import yaml

    text = f"defaults: [_base@{APP}, _self_]\n{yaml.safe_dump({APP: dict(app)})}"
    (folder / "conf" / "app" / f"{APP}.yaml").write_text(text)


def write_campaign(folder: Path, kinds: Sequence[Kind], *, pilot_only: bool) -> None:
    """Write the campaign: each kind once on each number of CPUs; later also what is larger."""
    import yaml

    sweeps: dict[str, Any] = {
        f"pilot{number}": (kind.parameters(PILOT_SEED), list(CPUS))
        for number, kind in enumerate(kinds)
    }
    if not pilot_only:
        usual = KINDS[0].parameters(PILOT_SEED) | {"seed": list(USUAL_SEEDS)}
        sweeps |= {"usual": (usual, [1])}
        sweeps |= {"large": ({**LARGE, "images": str(IMAGES)}, [1])}
        sweeps |= {"long": ({**LONG, "images": str(IMAGES)}, [1])}
    defaults: list[Any] = ["_base", *(f"_sweep@sweeps.{name}" for name in sweeps), "_self_"]
    defaults += [
        {"override /images@_global_.images": "bids"},
        {"override /app@_global_.app": ["parcel_study"]},
        {"override /device@_global_.device": ["cpu"]},
    ]
    content = {
        "defaults": defaults, "name": CAMPAIGN, "seed": SEED, "time_limit_s": 1800,
        "metronome": False,
        "sweeps": {
            name: {
                "parameters": {n: v if isinstance(v, list) else [v] for n, v in values.items()},
                "cpus": cpus,
            }
            for name, (values, cpus) in sweeps.items()
        },
    }  # fmt: skip
    text = yaml.safe_dump(content, sort_keys=False)
    (folder / "conf" / "campaign" / f"{CAMPAIGN}.yaml").write_text(text)


def recommendation(
    folder: Path, chosen: Sequence[tuple[Kind, int]], pilot: Sequence[Mapping[str, Any]], cpus: int
) -> dict[str, Any]:
    """Return what ``voxcast recommend --json`` would: the time and memory of the pilot.

    The parameters of the cells are written to ``folder``.

    Parameters
    ----------
    pilot : sequence of mapping
        Measured time and memory of each kind by number of CPUs, see `parcel_pool.pilot_rows`.
    cpus : int
        That are asked for each cell.
    """
    measured = {(r["pipeline"], r["parcels"], r["target"], r["cpus"]): r for r in pilot}
    folder.mkdir(exist_ok=True)
    images = []
    for kind, seed in chosen:
        path = folder / f"{kind.pipeline}-{kind.parcels}-{kind.target}-{seed}.json"
        path.write_text(json.dumps(kind.parameters(seed)))
        options = [
            _row(n, measured[kind.pipeline, kind.parcels, kind.target, n]) for n in CPUS
        ]  # fmt: skip
        images.append({
            "image": str(path), "app": APP, "chosen": options[CPUS.index(cpus)], "why": "cheapest",
            "configurations": options,
        })  # fmt: skip
    return {
        "cluster": CLUSTER, "policy": {"confidence": 0.95}, "walltime_step_s": STEP_S,
        "images": images,
    }  # fmt: skip


def _row(cpus: int, measured: Mapping[str, Any]) -> dict[str, Any]:
    upper_s = UPPER * measured["runtime_s"]
    return {
        "node_type": PARTITION, "partition": PARTITION, "device": "cpu", "cpus": cpus, "gpus": 0,
        "walltime_s": -(-upper_s // STEP_S) * STEP_S,
        "memory_bytes": int(MEMORY_MARGIN * measured["peak_rss_bytes"]),
        "runtime_s_median": measured["runtime_s"], "runtime_s_upper": upper_s,
        "peak_rss_bytes_median": measured["peak_rss_bytes"],
        "excluded": None, "risk": 0.1, "usd_bound": 0.0,
    }  # fmt: skip
