"""``voxcast learn --history``: the jobs of accounting joined with the images that they ran on."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest

from commands import voxcast

HEADER = (
    "JobID|JobName|State|ExitCode|Start|End|ElapsedRaw|TotalCPU|MaxRSS|AllocCPUS|NTasks|WorkDir"
)
FAST = ("tune.families=[median,voxels,law]", "tune.trials=1", "tune.folds=2")


def job(number: int, name: str, seconds: int, cpus: int = 4, folder: str = "/home/ann") -> str:
    clock = f"{seconds * cpus // 3600:02d}:{seconds * cpus // 60 % 60:02d}:{seconds % 60:02d}"
    day = f"2026-03-{1 + number % 28:02d}"
    return (
        f"{number}|{name}|COMPLETED|0:0|{day}T09:00:00|{day}T10:00:00|{seconds}|{clock}||{cpus}||"
        f"{folder}\n{number}.batch|batch|COMPLETED|0:0|||{seconds}|{clock}|2000000K|{cpus}|1|"
    )


def written(path: Path, *jobs: str) -> Path:
    path.write_text("\n".join([HEADER, *jobs]) + "\n")
    return path


@pytest.fixture(scope="module")
def bids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve subjects, one of them with two sessions."""
    folder = tmp_path_factory.mktemp("bids")
    for number in range(1, 13):
        edge = 14 + number
        axes = np.mgrid[:edge, :edge, :edge] - edge / 2
        ball = ((axes**2).sum(axis=0) < (edge / 3) ** 2) * 300
        voxels = ball + np.random.default_rng(number).normal(10, 3, ball.shape)
        for session in ("1", "2") if number == 3 else ("1",):
            name = f"sub-{number:02d}_ses-{session}"
            path = folder / name.replace("_", "/") / "anat" / f"{name}_T1w.nii.gz"
            path.parent.mkdir(parents=True)
            nibabel.save(nibabel.Nifti1Image(voxels.astype(np.float32), np.eye(4) * 4), path)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    voxcast("init", tmp_path / "lab")
    return tmp_path / "lab"


def test_a_laboratory_learns_from_its_accounting_in_one_command(
    bids: Path, project: Path, tmp_path: Path
) -> None:
    jobs = [
        job(100 + number, f"fMRIPrep_sub-{number:02d}_ses-1", 300 + 40 * number)
        for number in range(1, 13)
    ]
    accounting = written(tmp_path / "sacct.txt", *jobs, job(900, "jupyter", 50, 1))
    changes = [word for change in FAST for word in ("-S", change)]
    words = ("learn", bids, "--app", "fmriprep", "--history", accounting, *changes)
    dry = voxcast(*words, "--dry-run", project=project)
    assert "12 new jobs of fmriprep, 12 joined with an image (100 %)" in dry.err
    assert not (project / "data/history/fmriprep_jobs").exists()
    assert not (project / "conf/app/fmriprep.yaml").exists()
    learned = voxcast(*words, project=project)
    assert "left out: 1 of other applications or not ended" in learned.err
    assert "fmriprep --anat-only" not in learned.err
    image = next(bids.rglob("sub-04*.nii.gz"))
    (answer,) = voxcast("predict", image, "--app", "fmriprep", "--json", project=project).json
    (prediction,) = answer["predictions"]
    assert prediction["cpus"] == 4  # which the jobs used
    assert prediction["runtime_s_median"] == pytest.approx(460, rel=0.5)
    again = voxcast(*words, "--dry-run", project=project)
    assert "12 joined" in again.err


def test_subjects_come_from_folders_and_from_a_table_of_jobs(
    bids: Path, project: Path, tmp_path: Path
) -> None:
    accounting = written(
        tmp_path / "sacct.txt",
        job(1, "recon-all", 300, folder="/scratch/sub-03/ses-2/work"),
        job(2, "recon-all", 310),
        job(3, "recon-all", 320),
        job(4, "recon-all_sub-99", 330),
    )
    table = tmp_path / "jobs.csv"
    table.write_text("job,subject,session\n2,05,1\n")
    words = ("learn", bids, "--app", "recon_all", "--history", accounting, "--map", table)
    shown = voxcast(*words, "--dry-run", project=project).err
    assert "4 new jobs of recon_all, 2 joined with an image (50 %)" in shown
    assert "not joined: 1 job, the run states no subject" in shown
    assert "not joined: 1 job, no image of subject 99" in shown


def test_a_table_states_the_application_itself(bids: Path, project: Path, tmp_path: Path) -> None:
    table, columns = tmp_path / "runs.csv", tmp_path / "columns.yaml"
    table.write_text(
        "tool,head,wall,cpu,mem,cores\nRecon-All,sub-01,60,55,900,1\nbet,sub-02,9,9,100,1\n"
    )
    columns.write_text(
        "columns: {app: tool, subject: head, runtime_s: wall, cpu_s: cpu, cpus: cores,\n"
        "          peak_rss_bytes: {column: mem, unit: MB}}\nconstants: {device: cpu}\n"
    )
    words = ("learn", bids, "--app", "recon_all", "--history", table, "--map", columns)
    shown = voxcast(*words, "--dry-run", project=project).err
    assert "1 new job of recon_all, 1 joined" in shown
    assert "left out: 1 of other applications" in shown


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--history", "jobs.txt"), "jobs.txt: is accounting of no known kind; give what"),
        (("--map", "jobs.csv"), "--map: needs --history"),
        (("--history", "sacct.txt", "--map", "jobs.txt"), "jobs.txt"),
        (("--history", "sacct.txt", "--pattern", "(?P<app>moon)"), "no job of fmriprep among"),
        (("--history", "sacct.txt", "--map", "empty.csv"), "has no column of jobs"),
        (("--history", "gone.txt"), "gone.txt: cannot be read: No such file or directory"),
    ],
)
def test_mistakes_are_one_line(
    bids: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], line: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "sacct.txt", job(1, "fmriprep_sub-01_ses-1", 300))
    (tmp_path / "jobs.txt").write_text("no accounting\n")
    (tmp_path / "empty.csv").write_text("number\n1\n")
    refused = voxcast(
        "learn", bids, "--app", "fmriprep", *words, "--dry-run", "--project", project, code=2
    )
    assert line in refused.err.splitlines()[-1]
    assert "Traceback" not in refused.err
