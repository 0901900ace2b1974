"""One core a job, whole nodes and planned cores on the same cells, and a pool in passes, on Slurm.

A private Slurm of one virtual node with two CPUs, which are this machine's cores: jobs get the
cores that they hold. First ``voxcast measure --campaign --submit`` measures a pilot, one cell of
each kind, and then, in a second run of the command, a few more of which one needs more memory and
one more time than its workers have. The pilot predicts the cells that ``voxcast submit`` runs then
in three ways. All ways start with a copy of one cache, in which the region means are. Rounds that
are on record are not made again; writes JSON::

    python benchmarks/parcel_slurm.py --out results/parcel_study/slurm.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from parcel_cells import (
    APP,
    CPUS,
    IMAGES,
    KINDS,
    LARGE,
    LONG,
    NODE_BYTES,
    PARTITION,
    PILOT_SEED,
    REPOSITORY,
    SHORT,
    USUAL_SEEDS,
    cells,
    recommendation,
    write_campaign,
    write_project,
)
from parcel_pool import pilot_rows, pool_record, run_campaign, voxcast
from private_slurm import PACKAGES, PrivateSlurm, missing_programs
from voxcast.files import read_json, write_json

# CPUs of a job, and further options of `voxcast submit`.
ARMS: dict[str, tuple[int, tuple[str, ...]]] = {
    "one_core_a_job": (1, ()),
    "whole_nodes": (2, ()),
}
ROUNDS = 2
COLUMNS = "JobID,State,Submit,Start,End,ElapsedRaw,AllocCPUS,TimelimitRaw"


def fill_cache(cache: Path, parcellations: set[tuple[int, int]]) -> None:
    """Compute the region means of parcellations: number of regions, seed."""
    from voxcast.content_cache import ContentCache
    from voxcast_apps.parcel_study import DEFAULTS
    from voxcast_apps.parcellation import participants_of, region_means

    participants = participants_of(IMAGES, DEFAULTS["participants"])
    for parcels, seed in sorted(parcellations):
        region_means(participants, parcels, seed, ContentCache(cache))


def run_arm(slurm: PrivateSlurm, project: Path, requests: Path, arm: str, folder: Path) -> Any:
    """Submit the cells in one way, follow them to the end, and return the figures."""
    shutil.copytree(folder.parent / "cache", folder / "cache")
    submitted = voxcast(
        project, folder / "cache", "submit", "--requests", str(requests), "--app", APP, "--out",
        str(folder / "out"), "--poll", "2s", "--stall", "0s", *ARMS[arm][1],
    )  # fmt: skip
    attempts = [attempt for row in submitted["rows"] for attempt in row["attempts"]]
    numbers = ",".join(sorted({attempt["job"].partition("_")[0] for attempt in attempts}))
    accounting = slurm.command("sacct", "-X", "-P", "-n", "-j", numbers, "-o", COLUMNS).stdout
    return figures(submitted, accounting)


def figures(submitted: dict[str, Any], accounting: str) -> dict[str, Any]:
    """Return makespan, core-hours, waiting and failures of a submission.

    Parameters
    ----------
    submitted : dict
        What ``voxcast submit --json`` printed.
    accounting : str
        Its jobs as lines of ``sacct -X -P -n``, with `COLUMNS`.
    """
    names = COLUMNS.split(",")
    jobs = [dict(zip(names, line.split("|"), strict=True)) for line in accounting.splitlines()]
    first_s = min(_epoch_s(job["Submit"]) for job in jobs)
    attempts = [attempt for row in submitted["rows"] for attempt in row["attempts"]]
    waits_s = [_epoch_s(a["started_at"]) - _epoch_s(a["submitted_at"]) for a in attempts]
    return {
        "makespan_s": max(_epoch_s(job["End"]) for job in jobs) - first_s,
        "asked_core_h": sum(int(j["TimelimitRaw"]) * int(j["AllocCPUS"]) for j in jobs) / 60,
        "held_core_h": sum(int(j["ElapsedRaw"]) * int(j["AllocCPUS"]) for j in jobs) / 3600,
        "cpu_core_h": sum(attempt["cpu_s"] or 0.0 for attempt in attempts) / 3600,
        "jobs": len(jobs),
        "outcomes": dict(Counter(attempt["outcome"] for attempt in attempts)),
        "mean_wait_s": statistics.mean(waits_s),
        "cells_by_cpus": dict(Counter(str(a["request"]["cpus"]) for a in attempts)),
    }


def _epoch_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def measure(record: dict[str, Any], out: Path, folder: Path) -> None:
    """Make what is not in the record, which is written after each part."""
    chosen = cells(record["cells"])
    kinds = sorted({kind for kind, _ in chosen}, key=KINDS.index)
    parcellations = {(kind.parcels, seed) for kind, seed in chosen}
    parcellations |= {(kind.parcels, PILOT_SEED) for kind in kinds}
    parcellations |= {(KINDS[0].parcels, seed) for seed in USUAL_SEEDS}
    parcellations |= {(larger["parcels"], 1) for larger in (LARGE, LONG)}
    print(f"cache: {len(parcellations)} parcellations", file=sys.stderr, flush=True)
    fill_cache(folder / "cache", parcellations)
    project = folder / "project"
    write_project(project, sys.executable)
    slurm = PrivateSlurm(
        folder / "slurm", nodes=1, node_cpus=max(CPUS), node_memory_mb=NODE_BYTES // 2**20
    )
    with slurm:
        os.environ |= slurm.environment
        if "pool" not in record:
            print("pilot, as a pool", file=sys.stderr, flush=True)
            write_campaign(project, kinds, pilot_only=True)
            run_campaign(project, folder / "cache", PARTITION)
            record["pilot"] = pilot_rows(project)
            pilot_passes = len(pool_record(project)["passes"])
            print("larger and longer cells", file=sys.stderr, flush=True)
            write_campaign(project, kinds, pilot_only=False)
            run_campaign(project, folder / "cache", SHORT)
            record["pool"] = {"pilot_passes": pilot_passes, **pool_record(project)}
            write_json(out, record)
        for arm, (cpus, _) in ARMS.items():
            content = recommendation(folder / "cells", chosen, record["pilot"], cpus)
            write_json(folder / f"{arm}.json", content)
        for number in range(1, record["rounds"] + 1):
            for arm in list(ARMS) if number % 2 else list(reversed(ARMS)):
                of_arm = record["arms"].setdefault(arm, {})
                if str(number) not in of_arm:
                    print(f"round {number}: {arm}", file=sys.stderr, flush=True)
                    of_arm[str(number)] = run_arm(
                        slurm, project, folder / f"{arm}.json", arm, folder / f"{number}-{arm}"
                    )
                    write_json(out, record)


def main() -> int:
    """Measure, or go on with the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/parcel_study/slurm.json"))
    parser.add_argument("--cells", type=int, default=len(cells()), help="so many of them")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    if missing := missing_programs():
        print(f"not measured: Slurm is not installed (no {', '.join(missing)}); apt-get install "
              f"-y --no-install-recommends {PACKAGES}", file=sys.stderr)  # fmt: skip
        return 0
    settings = {"cells": args.cells, "rounds": args.rounds, "nodes": 1, "node_cpus": max(CPUS)}
    record: dict[str, Any] = read_json(args.out) if args.out.is_file() else {}
    if {name: record.get(name) for name in settings} != settings:
        record = settings | {"arms": {}}
    from voxcast.config.campaigns import project_campaign

    for number in (signal.SIGTERM, signal.SIGHUP):  # Slurm is stopped then, too
        signal.signal(number, signal.default_int_handler)
    out = args.out.resolve()
    os.chdir(REPOSITORY)
    project_campaign("parcel_study").prepare()
    # Sockets of daemons have short names only, so this is not below the folder of results.
    try:
        with tempfile.TemporaryDirectory(prefix="voxcast-") as name:
            measure(record, out, Path(name))
    except KeyboardInterrupt:
        print("interrupted; Slurm is stopped, the same command goes on", file=sys.stderr)
        return 130
    print(json.dumps(record["arms"], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
