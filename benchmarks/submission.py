"""Planning, rendering and submitting 10,000 jobs, and their status from one call of ``sacct``.

All of it on a private Slurm whose partition is down, so that nothing runs. A plan is made from
drawn requests; ``voxcast submit --detach`` groups it, writes scripts and lists of tasks, and calls
Slurm's own ``sbatch``. Then the accounting database is told that half of the tasks have
ended and half are running, as copies of a job that has really run here; ``voxcast status`` asks
Slurm's own ``sacct`` and must count them. Prints JSON; 1 if a bound is missed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from private_slurm import PrivateSlurm, missing_programs
from timing import machine, measured_verb, seconds

JOBS = (1_000, 10_000)
RENDER_BOUND_S, STATUS_BOUND_S = 30.0, 3.0
REPEATS = 3
RESUMED_AT_MOST = 5
COMPLETED, RUNNING, NO_TASK = 3, 1, 4294967294  # as in Slurm's database
KNOWN_S = 60.0  # in which the database hears of a submission


def write_plan(folder: Path, count: int) -> Path:
    """Write a plan of ``count`` images, whose predictions are lognormal."""
    import numpy as np

    from voxcast.jobs.submission import Plan
    from voxcast.jobs.task import tasks_of
    from voxcast.records import App

    rng = np.random.default_rng(0)
    median_s = rng.lognormal(8, 0.6, count)
    memory = rng.lognormal(21.5, 0.4, count)
    rows = [
        {
            "walltime_s": 60.0 * np.ceil(1.5 * m / 60), "runtime_s_median": m,
            "runtime_s_upper": 1.5 * m, "partition": "debug", "device": "cpu",
            "memory_bytes": int(1e8 * np.ceil(1.2 * b / 1e8)), "cpus": 1, "gpus": 0,
            "usd_bound": 0.01, "peak_rss_bytes_median": b, "risk": 0.05,
        }
        for m, b in zip(median_s.tolist(), memory.tolist(), strict=True)
    ]  # fmt: skip
    images = [str(folder / f"sub-{n:05}_T1w.nii.gz") for n in range(count)]
    app = App("segment", "1", argv=("segment", "{image}", "{out}", "--threads", "{threads}"))
    plan = Plan(app, tuple(tasks_of(images, rows, 0.95)))
    path = folder / "plan.json"
    path.write_text(json.dumps(plan.to_record()))
    return path


def render(path: Path) -> int:
    """Group the tasks of a plan and write scripts and lists of all arrays; return how many."""
    from voxcast.jobs.script import array_script, task_list
    from voxcast.jobs.state import planned_arrays
    from voxcast.jobs.submission import ArrayFiles, Plan, read_json_object

    plan = Plan.from_record(read_json_object(path), path)
    arrays, by_name = planned_arrays(plan), {task.name: task for task in plan.tasks}
    for number, array in enumerate(arrays, 1):
        tasks = [by_name[name] for name in array.names]
        files = ArrayFiles(path.parent / f"{number}.tasks", path.parent / "work", "%a.log")
        script = array_script(plan, tasks, array.request, "segment", files)
        files.task_list.with_suffix(".sbatch").write_text(script)
        files.task_list.write_text(task_list(plan, tasks, array.request, files))
    return len(arrays)


class Accounting:
    """The database of a private Slurm, in which jobs are entered as ended or running."""

    def __init__(self, slurm: PrivateSlurm) -> None:
        self._address = str(slurm.folder / "db" / "s")
        (self._columns, self._step_columns) = (
            self._ask(f"show columns from lab_{name}_table").split("\n")
            for name in ("job", "step")
        )

    def enter(self, jobs: dict[str, int]) -> None:
        """Enter tasks 1, 2, … of array jobs, by number of tasks; every second one is running."""
        statements, first = [], 1_000_000
        for job, count in jobs.items():
            state = f"if(seq % 2, {COMPLETED}, {RUNNING})"
            end = "if(seq % 2, t.time_end, 0)"
            fields = {
                "job_db_inx": f"{first} + seq", "id_job": f"{first} + seq", "id_array_job": job,
                "id_array_task": "seq", "state": state, "time_end": end,
            }  # fmt: skip
            statements += [
                self._insert("job", self._columns, fields, count),
                self._insert(
                    "step", self._step_columns,
                    {"job_db_inx": f"{first} + seq", "state": state, "time_end": end}, count,
                ),
                f"delete from lab_job_table "  # noqa: S608
                f"where id_array_job = {job} and id_array_task = {NO_TASK}",
            ]  # fmt: skip
            first += count
        self._ask(";\n".join(statements))

    def _insert(self, table: str, columns: list[str], fields: dict[str, str], count: int) -> str:
        """Return the statement that copies the first job, or its step, with other fields."""
        names = [line.split("\t")[0] for line in columns if line]
        values = ", ".join(fields.get(name, f"t.`{name}`") for name in names)
        listed = ", ".join(f"`{name}`" for name in names)
        return (
            f"insert into lab_{table}_table ({listed}) select {values} "  # noqa: S608
            f"from lab_{table}_table t join seq_1_to_{count} where t.job_db_inx = 1"
        )

    def _ask(self, statement: str) -> str:
        command = ["mariadb", "--no-defaults", "-S", self._address, "-uroot", "slurm_acct", "-N"]
        return subprocess.run(
            command, input=statement, capture_output=True, text=True, check=True
        ).stdout


def wait_for(text: str, *command: str) -> None:
    """Wait until a command prints a text."""
    deadline = time.monotonic() + KNOWN_S
    while text not in subprocess.run(command, capture_output=True, text=True, check=True).stdout:
        if time.monotonic() > deadline:
            raise SystemExit(f"{' '.join(command)} does not print {text!r}")
        time.sleep(0.5)


def submitted_jobs(submission: Any) -> dict[str, int]:
    """Return the number of tasks by job; the job is empty where Slurm did not answer."""
    from voxcast.jobs.state import SubmissionState

    state = SubmissionState.of(submission.plan, submission.events())
    return {array.job: len(array.names) for array in state.arrays.values()}


def figures_of(count: int) -> dict[str, Any]:
    """Return the figures of ``count`` jobs, on a Slurm of their own."""
    from voxcast.jobs import slurm as commands
    from voxcast.jobs.submission import Submission

    with (
        tempfile.TemporaryDirectory() as name,
        PrivateSlurm(Path(name) / "s", nodes=1, node_memory_mb=64_000) as slurm,
    ):
        os.environ |= slurm.environment
        folder, output = Path(name) / "images", Path(name) / "output"
        folder.mkdir()
        for n in range(count):
            (folder / f"sub-{n:05}_T1w.nii.gz").touch()
        options = ("--mem=20M", "--output=/dev/null", "--array=1", "--wrap=true")
        slurm.command("sbatch", *options)
        wait_for("1_1.batch|COMPLETED", "sacct", "-P", "-n", "-o", "JobID,State")
        slurm.command("scontrol", "update", "PartitionName=debug", "State=DOWN")
        plan_s = seconds(lambda: write_plan(folder, count))
        render_s = seconds(lambda: render(folder / "plan.json"))
        arguments = ["submit", str(folder / "plan.json"), "--detach"]
        out = ["--out", str(Path(name) / "out")]
        submit = measured_verb([*arguments, *out], output)
        submission = Submission.open(Path(name) / "out")
        jobs = submitted_jobs(submission)
        resumed = 0
        while "" in jobs or sum(jobs.values()) != count:  # Slurm did not answer in time
            if resumed == RESUMED_AT_MOST:
                raise SystemExit(f"{sum(jobs.values())} of {count} tasks were submitted")
            resumed += 1
            more = measured_verb(["submit", "--detach", "--out", *out[1:]], output)
            submit = {key: submit[key] + more[key] for key in ("wall_s", "cpu_s")}
            jobs = submitted_jobs(submission)
        last = max(jobs, key=int)
        wait_for(f"{last}_[", "sacct", "-X", "-P", "-n", "-j", last, "-o", "JobID")
        slurm.stop_daemon("slurmctld")  # it would say again that all are waiting
        Accounting(slurm).enter(jobs)
        status = [
            measured_verb(["status", "--json", str(submission.folder)], output)
            for _ in range(REPEATS)
        ]
        running = json.loads(output.read_text())["by_status"]["running"]
        expected = sum(tasks // 2 for tasks in jobs.values())
        if running != expected:
            raise SystemExit(f"{running} tasks are said to be running, and {expected} are")
        sacct_s = [
            seconds(lambda: commands.accounting(jobs, with_steps=False)) for _ in range(REPEATS)
        ]
        with_steps_s = seconds(lambda: commands.accounting(jobs))
        lines = commands.accounting(jobs).count("\n")
    status.sort(key=lambda figures: figures["wall_s"])
    return {
        "jobs": count, "arrays": len(jobs), "plan_s": plan_s, "submit": submit,
        "render_s": render_s, "sacct_lines": lines,
        "resumed": resumed,
        "status": status[REPEATS // 2], "status_wall_s": [a["wall_s"] for a in status],
        "sacct_with_steps_s": with_steps_s, "sacct_alone_s": sorted(sacct_s)[REPEATS // 2],
    }  # fmt: skip


def main() -> int:
    """Measure and print."""
    if missing := missing_programs():
        print(json.dumps({"skipped": f"not installed: {', '.join(missing)}"}))
        return 0
    figures: dict[str, Any] = {"machine": machine()}
    figures["growth"] = [figures_of(count) for count in JOBS]
    figures |= {"bound_render_s": RENDER_BOUND_S, "bound_status_s": STATUS_BOUND_S}
    print(json.dumps(figures, indent=2))
    most = figures["growth"][-1]
    fits = most["plan_s"] + most["render_s"] <= RENDER_BOUND_S
    return 0 if fits and most["status"]["wall_s"] <= STATUS_BOUND_S else 1


if __name__ == "__main__":
    sys.exit(main())
