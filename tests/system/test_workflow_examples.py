"""The examples of workflow engines: Snakemake runs its own; the commands of Nextflow's are run."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from champions import register_champion
from commands import environment
from small_head import write_head
from voxcast.jobs.task import ATTEMPTS, TABLE_COLUMNS

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples"
OUT = "build/workflow"  # of config.yaml
HUNGRY = PROJECT / "tests" / "samples" / "hungry.py"
SUBJECTS = {"sub-01": 76, "sub-02": 88, "sub-03": 100}  # with the edge of the head
JOB = re.compile(r"rule process:\n(?:    .*\n)*?    wildcards: sample=(\S+)\n(?:    .*\n)*?"
                 r"    resources: (.*)\n")  # fmt: skip


class Job(NamedTuple):
    """An attempt as Snakemake lists it."""

    sample: str
    runtime: int
    mem_mb: int
    partition: str


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workflow") / "project"
    shutil.copytree(PROJECT / "conf", folder / "conf")
    shutil.copy2(PROJECT / "params.yaml", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        register_champion(folder, 40)
    for subject, edge in SUBJECTS.items():
        path = folder.parent / "heads" / f"{subject}_T1w.nii.gz"
        path.parent.mkdir(exist_ok=True)
        write_head(path, spacing_mm=2.5, edge=edge)
    return folder


@pytest.fixture
def workflow(project: Path, tmp_path: Path) -> Path:
    """A folder with the Snakemake example, and the heads; jobs are limited in memory."""
    pytest.importorskip("snakemake", reason="Snakemake is not installed")
    folder = tmp_path / "workflow"
    shutil.copytree(EXAMPLES / "snakemake", folder)
    rules = folder / "Snakefile"
    time_only = "timeout {resources.runtime}m"
    with_memory = f"{time_only} env LIMIT_MIB={{resources.mem_mb}}"
    assert rules.read_text().count(time_only) == 1
    rules.write_text(rules.read_text().replace(time_only, with_memory))
    shutil.copytree(project.parent / "heads", folder / "heads")
    return folder


def snakemake(workflow: Path, project: Path, sizes: dict[str, int], *more: str, url: str = "",
              code: int = 0) -> str:  # fmt: skip
    """Run the workflow, with jobs that hold so many MiB; return what Snakemake printed."""
    mib = {f"{subject}_T1w.nii.gz": size for subject, size in sizes.items()}
    ended = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", *more, "--config", f"url={url}",
         "images=heads/{sample}_T1w.nii.gz", "app=segment", f"project={project}",
         f"command={sys.executable} {HUNGRY}"],
        cwd=workflow, env=environment(MIB=json.dumps(mib)), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    return ended.stderr


def requests(folder: Path) -> dict[str, dict[str, str]]:
    """Return the rows of the table in a folder by subject."""
    import csv

    with (folder / "resources.csv").open(newline="") as file:
        return {row["sample"].removesuffix("_T1w"): row for row in csv.DictReader(file)}


def jobs(printed: str) -> list[Job]:
    listed = []
    for sample, text in JOB.findall(printed):
        values = dict(pair.split("=") for pair in text.split(", "))
        runtime, mem_mb = int(values["runtime"]), int(values["mem_mb"])
        listed.append(Job(sample, runtime, mem_mb, values["slurm_partition"]))
    return listed


def requested(rows: dict[str, dict[str, str]], sample: str, attempt: int) -> Job:
    row = rows[sample]
    return Job(sample, int(row[f"time_min_{attempt}"]), int(row[f"memory_mib_{attempt}"]),
               row["partition"])  # fmt: skip


def test_snakemake_gives_each_image_its_request_and_more_where_that_is_too_little(
    workflow: Path, project: Path
) -> None:
    snakemake(workflow, project, {}, "--until", "requests")
    rows = requests(workflow / OUT)
    assert rows.keys() == SUBJECTS.keys()
    sizes = [int(rows[subject]["memory_mib_1"]) for subject in SUBJECTS]
    assert sizes == sorted(set(sizes))  # a larger head gets more
    between = (int(rows["sub-02"]["memory_mib_1"]) + int(rows["sub-02"]["memory_mib_2"])) // 2
    held_mib = {"sub-01": 30, "sub-02": between, "sub-03": 4000}
    printed = snakemake(workflow, project, held_mib, "--keep-going", code=1)
    assert "MemoryError" in printed
    attempts = {"sub-01": 1, "sub-02": 2, "sub-03": ATTEMPTS}
    assert sorted(jobs(printed)) == sorted(
        requested(rows, sample, n + 1) for sample, times in attempts.items() for n in range(times)
    )
    for subject in ("sub-01", "sub-02"):
        held = json.loads((workflow / OUT / subject / "held.json").read_text())
        assert held == {"mib": held_mib[subject], "threads": int(rows[subject]["cpus"])}
    assert not (workflow / OUT / "sub-03").exists()


NEXTFLOW = EXAMPLES / "nextflow" / "main.nf"


def script_of(process: str, values: dict[str, str]) -> str:
    """Return the script of a process of the Nextflow example, with its variables filled in."""
    body = NEXTFLOW.read_text().split(f"process {process} {{\n", 1)[1].split("\n}\n", 1)[0]
    text = body.split('"""', 2)[1].replace("\\\\", "\\")
    return re.sub(r"\$\{([\w.]+)\}", lambda match: values[match[1]], text)


def test_nextflow_asks_for_requests_by_a_command_that_works(project: Path, tmp_path: Path) -> None:
    heads = sorted((project.parent / "heads").iterdir())
    for head in heads:  # Nextflow links inputs into the folder of a task
        (tmp_path / head.name).symlink_to(head)
    script = script_of("REQUESTS", {
        "images": " ".join(head.name for head in heads), "url": "", "params.app": "segment",
        "params.cluster": "osc", "params.project": str(project),
    })  # fmt: skip
    subprocess.run(["bash", "-ue"], input=script, cwd=tmp_path, env=environment(), text=True,
                   check=True)  # fmt: skip
    rows = requests(tmp_path)
    assert rows.keys() == SUBJECTS.keys()
    # The rows are joined with the images by the names of the files.
    assert [Path(row["image"]).name for row in rows.values()] == [head.name for head in heads]
    row = rows["sub-01"]
    script = script_of("PROCESS_IMAGE", {
        "params.command": f"{sys.executable} {HUNGRY}", "image": heads[0].name,
        "row.sample": row["sample"], "task.cpus": row["cpus"],
    })  # fmt: skip
    subprocess.run(["bash", "-ue"], input=script, cwd=tmp_path, text=True, check=True,
                   env=environment(MIB=json.dumps({heads[0].name: 1})))  # fmt: skip
    assert (tmp_path / row["sample"] / "held.json").is_file()


def test_nextflow_uses_columns_of_the_table() -> None:
    text = NEXTFLOW.read_text()
    by_attempt = re.findall(r"row\.get\('(\w+)_' \+ task\.attempt\) \+ ' (\w+)'", text)
    assert by_attempt == [("time_min", "min"), ("memory_mib", "MB")]
    names = set(re.findall(r"\brow\.(?!get\b)(\w+)", text))
    names |= {f"{name}_{n}" for name, _ in by_attempt for n in range(1, ATTEMPTS + 1)}
    assert {"cpus", "partition", "sample", "image"} < names <= set(TABLE_COLUMNS)
    assert f"maxRetries {ATTEMPTS - 1}" in text
    assert f"task.attempt <= {ATTEMPTS - 1} ? 'retry'" in text
