"""The comparison of a parcel study on a private Slurm: its cells, requests and figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parcel_cells import CPUS, KINDS, cells, recommendation, write_campaign, write_project
from parcel_slurm import figures
from private_slurm import PACKAGES
from voxcast import config
from voxcast.allocation.cores import with_planned_cpus
from voxcast.config.campaigns import project_campaign
from voxcast.jobs.task import from_file
from voxcast_apps.parcel_study import DEFAULTS

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "parcel_slurm.py"


def pilot() -> list[dict]:
    """Return a pilot in which two CPUs take three quarters of the time of one."""
    return [
        {"pipeline": kind.pipeline, "parcels": kind.parcels, "target": kind.target, "cpus": cpus,
         "runtime_s": (20.0 if kind.target == "bias" else 2.0) * (1.0, 0.75)[cpus - 1],
         "peak_rss_bytes": 120_000_000}
        for kind in KINDS for cpus in CPUS
    ]  # fmt: skip


def test_all_ways_have_the_same_cells_and_a_trial_the_first_of_them() -> None:
    everything = cells()
    assert len(set(everything)) == len(everything) == sum(kind.cells for kind in KINDS)
    assert cells(10) == everything[:10]
    for kind, seed in everything[:20]:
        assert kind.parameters(seed).keys() < DEFAULTS.keys()


def test_requests_are_those_of_the_pilot_and_can_be_planned(tmp_path: Path) -> None:
    chosen = cells(40)
    contents = {cpus: recommendation(tmp_path / "in", chosen, pilot(), cpus) for cpus in CPUS}
    for cpus, content in contents.items():
        _, tasks = from_file(content, tmp_path)
        assert len({task.name for task in tasks}) == 40
        assert {task.requests.first.cpus for task in tasks} == {cpus}
        assert {task.requests.first.walltime_s for task in tasks} == {60.0}
        assert {task.requests.first.memory_bytes for task in tasks} == {300_000_000}
    planned = with_planned_cpus(contents[1], nodes=1, cores_per_node=2)
    assert {image["chosen"]["cpus"] for image in planned["images"]} == {1}


def test_the_project_has_the_application_and_what_the_pool_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, sys.executable)
    monkeypatch.chdir(tmp_path)
    images = ("images.path=mri", "images.participants=[p0001]")
    sizes = []
    for pilot_only in (True, False):
        write_campaign(tmp_path, KINDS[:2], pilot_only=pilot_only)
        settings = project_campaign("parcels", images).settings
        sizes.append(len(settings.sweeps))
    assert sizes == [2, 5]
    app = config.load_app(tmp_path / "conf/app", "parcel_cell")
    assert app.argv[-3:] == ("{image}", "{out}", "{threads}")
    cluster = config.load_submit(cluster="laboratory", here=config.Here.of_this_machine).cluster
    limits_s = {partition.name: partition.max_walltime_s for partition in cluster.partitions}
    assert limits_s == {"debug": None, "short": 120.0}


def test_the_figures_of_a_submission_worked_out_by_hand() -> None:
    def attempt(start: int, outcome: str, cpu_s: float | None) -> dict:
        return {
            "outcome": outcome, "cpu_s": cpu_s, "request": {"cpus": 1},
            "submitted_at": "2026-01-01T00:00:00", "started_at": f"2026-01-01T00:00:{start}",
        }  # fmt: skip

    rows = [
        {"attempts": [attempt(10, "timeout", None), attempt(40, "completed", 18.0)]},
        {"attempts": [attempt(10, "completed", 18.0)]},
    ]
    times = ("2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:00:40",
             "2026-01-01T00:00:30|2026-01-01T00:00:40|2026-01-01T00:01:40")  # fmt: skip
    accounting = f"7_1|COMPLETED|{times[0]}|30|2|3\n8_1|COMPLETED|{times[1]}|60|1|6\n"
    made = figures({"rows": rows}, accounting)
    assert (made["jobs"], made["makespan_s"], made["mean_wait_s"]) == (2, 100, 20)
    assert made["outcomes"] == {"timeout": 1, "completed": 2}
    assert made["asked_core_h"] == pytest.approx((3 * 2 + 6) / 60)
    assert made["held_core_h"] == pytest.approx((30 * 2 + 60) / 3600)
    assert made["cpu_core_h"] == pytest.approx(36 / 3600)


def test_without_slurm_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import private_slurm, sys; private_slurm.SBIN = '/nowhere'; "
        "import parcel_slurm; sys.argv = ['parcel_slurm']; sys.exit(parcel_slurm.main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARK.parent, capture_output=True, text=True,
        env={**os.environ, "PATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("not measured: Slurm is not installed")
    assert line.endswith(PACKAGES)
