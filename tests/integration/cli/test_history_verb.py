"""``voxcast history``: imports, variation, replays, and CPU against GPU."""

import json
from pathlib import Path

import numpy as np
import pytest

from commands import refusal, voxcast
from synthetic_runs import cell, write_run
from voxcast.records import Configuration
from voxcast.runs.store import collect, load_history

HISTORY = Path(__file__).parents[3] / "data/history/reference"
SAMPLES = Path(__file__).parents[2] / "samples" / "imports"


def test_import_lists_what_it_could_not_use(tmp_path: Path) -> None:
    lines = voxcast(
        "history", "import", "sacct", SAMPLES / "sacct.txt", "--into", tmp_path
    ).out.splitlines()
    assert lines[-1] == "20 read = 13 imported + 0 duplicates + 3 skipped + 4 bad"
    assert lines[0] == f"bad      {SAMPLES / 'sacct.txt'}:25: run time is 0 s"
    again = voxcast(
        "history", "import", "sacct", SAMPLES / "sacct.txt", "--into", tmp_path, "--json"
    )
    content = again.json
    assert (content["imported"], content["duplicates"], content["part"]) == (0, 13, None)
    assert len(content["bad"]) == 4


def test_import_says_which_fields_and_values_are_unknown(tmp_path: Path) -> None:
    lines = voxcast(
        "history", "import", "sacct", SAMPLES / "sacct.txt", "--into", tmp_path / "a"
    ).out.splitlines()
    assert (
        f"unknown  {SAMPLES / 'sacct.txt'}:28: peak_rss_bytes: 9.66e+15 is out of range" in lines
    )
    (stated,) = (line for line in lines if "does not state" in line)
    assert stated.startswith("of 13 imported runs the source does not state: peak_rss_bytes of 7")
    # As exported with -X: without the lines of steps, which have the memory.
    (tmp_path / "x").write_text(
        "JobID|JobName|State|Elapsed|MaxRSS\n"
        + "".join(f"{n}|recon|COMPLETED|00:01:{n}|\n" for n in range(10, 40))
    )
    output = voxcast("history", "import", "sacct", tmp_path / "x", "--into", tmp_path / "b").out
    assert "export without -X" in output


def test_import_takes_application_and_subject_out_of_names(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        "JobID|JobName|State|Elapsed\n"
        "1|recon_sub-01|COMPLETED|00:01:00\n2|recon_sub-02_ses-1|COMPLETED|00:01:00\n"
        "3|seg_all|COMPLETED|00:01:00\n4|bash|COMPLETED|00:01:00\n"
    )
    patterns = ("--pattern", "^([a-z]+)_", "--pattern", "(?P<subject>sub-[0-9]+)")
    into = ("--into", tmp_path / "h")
    lines = voxcast("history", "import", "sacct", tmp_path / "x", *into, *patterns).out
    assert "x:5: app: 'bash' does not match --pattern" in lines
    assert "x:4: subject: 'seg_all' does not match --pattern" in lines
    runs = load_history([tmp_path / "h"]).sort_values(["app", "subject"])
    assert runs[["app", "subject"]].to_numpy().tolist() == [
        ["recon", "sub-01"], ["recon", "sub-02"], ["seg", ""],
    ]  # fmt: skip
    for arguments, message in (
        (("--pattern", "recon"), "--pattern: has no group"),
        (("--pattern", "(recon"), "--pattern: is no regular expression"),
        (("--pattern", "(a)", "--app", "b"), "cannot be given together"),
    ):
        completed = voxcast(
            "history", "import", "sacct", tmp_path / "x", *into, *arguments, code=2
        )
        assert message in completed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["history", "import", "sacct"], "no file given"),
        (["history", "import", "sacct", "nowhere.txt"], "nowhere.txt"),
        (["history", "import", "csv", SAMPLES / "runs.csv"], "--map"),
        (["history", "import", "nextflow", SAMPLES / "sacct.txt"], "no column"),
        (["history", "import", "abacus", "x"], "KIND: 'abacus' is not one of"),
    ],
)
def test_import_refuses_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    assert message in voxcast(*arguments, "--into", tmp_path, code=2).err.splitlines()[-1]


def test_import_of_bad_records_alone_fails(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("JobID|JobName|State|ElapsedRaw\n1|a|COMPLETED|-1\n")
    completed = voxcast(
        "history", "import", "sacct", tmp_path / "x", "--into", tmp_path / "h", code=2
    )
    assert "run time is -1 s" in completed.out


def test_fit_on_synthetic_runs(tmp_path: Path) -> None:
    voxcast("history", "import", "slant", SAMPLES / "slant", "--into", tmp_path)
    completed = voxcast(
        "history", "variation", tmp_path, "--by", "app,label:dataset", "--bootstrap", 20
    )
    assert "app slant, dataset MADEUP-1: n 12, " in completed.out
    assert "best by KS: " in completed.out
    assert "peak memory: constant, 50.1 GB to 50.2 GB" in completed.out
    content = json.loads(voxcast("history", "variation", tmp_path, "--bootstrap", 0, "--json").out)
    together = content["groups"][0]
    assert together["bimodal"]
    memory = voxcast(
        "history", "variation", tmp_path, "--target", "peak_rss_bytes", "--by", ""
    ).out
    assert memory.startswith("all runs: n 24, 50.1 GB ± 26.8 MB, CV 0.1 %")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "speed"], "no such target"),
        (["--by", "label:nothing"], "no run has this label"),
        (["--target", "cpu_s"], "no completed run has cpu_s"),
        (["--bootstrap", "-1"], "--bootstrap"),
    ],
)
def test_fit_refuses_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    voxcast("history", "import", "slant", SAMPLES / "slant", "--into", tmp_path)
    assert (
        message
        in voxcast("history", "variation", tmp_path, *arguments, code=2).err.splitlines()[-1]
    )


def test_variation_of_chosen_runs(tmp_path: Path) -> None:
    voxcast("history", "import", "slant", SAMPLES / "slant", "--into", tmp_path)
    options = ("--bootstrap", 0, "--json", "--by", "label:dataset")
    chosen = voxcast(
        "history", "variation", tmp_path, "--where", "label:dataset=MADEUP-1", *options
    )
    content = chosen.json
    assert [group["group"] for group in content["groups"]] == [{"label:dataset": "MADEUP-1"}]
    assert content["runs"] == 12
    refused = voxcast("history", "variation", tmp_path, "--where", "cpus=3", code=2).err
    assert "no run has cpus '3'" in refused


def test_repeats_count_once_and_allocations_are_separate(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for n in range(8):
        for repeat in (0, 1, 1001):
            for cpus in (1, 2):
                of = cell(repeat, volume_id=f"v{n}", configuration=Configuration("cpu", cpus))
                write_run(tmp_path / "runs", of, runtime_s=float(rng.uniform(5, 9)))
    collect(tmp_path / "runs", tmp_path / "batch")
    completed = voxcast("history", "variation", tmp_path / "batch", "--bootstrap", 0)
    assert "32 repeats, counted once" in completed.err
    groups = [line for line in completed.out.splitlines() if ": n " in line]
    assert [text[: len("app app, cpus 1: n 8,")] for text in groups] == [
        "app app, cpus 1: n 8,",
        "app app, cpus 2: n 8,",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such folder; give a folder of data/history"),
        ([str(HISTORY), "--app", "none"], "has no runs of none"),
        ([str(HISTORY), "--cost", "1,0,much"], "must be 3 numbers"),
        ([str(HISTORY), "--cost=-1,0,0"], "alpha"),
        ([str(HISTORY), "--folds", "1"], "--folds"),
        ([str(HISTORY.with_name("real"))], "3 subjects at full scale, 8 are needed"),
    ],
)
def test_invalid_replays_are_refused(arguments: list[str], message: str) -> None:
    assert message in voxcast("history", "replay", *arguments, code=2).err


def test_an_import_is_replayed_by_what_its_source_states(tmp_path: Path) -> None:
    rows = ["JobID|JobName|State|Elapsed|TotalCPU|MaxRSS|AllocCPUS|Start"]
    for n in range(24):
        cpus, minutes = 1 + n % 2, 10 + n % 12
        times = f"COMPLETED|00:{minutes}:00|00:{minutes * cpus - 1}:30"
        rows.append(f"{n}|recon_sub-{n % 12:02}|{times}||{cpus}|2024-05-{1 + n:02}T10:00:00")
        rows.append(f"{n}.batch|batch|{times}|{900 + minutes}M|{cpus}|")
    (tmp_path / "jobs.txt").write_text("\n".join(rows) + "\n")
    patterns = ("--pattern", "^([a-z]+)_", "--pattern", "(?P<subject>sub-[0-9]+)")
    files = (tmp_path / "jobs.txt", "--into", tmp_path / "jobs")
    voxcast("history", "import", "sacct", *files, *patterns)
    words = ("history", "replay", tmp_path / "jobs", "--trials", 1, "--folds", 2)
    printed = voxcast(*words).out
    assert "cheapest here: " in printed
    assert max(map(len, printed.splitlines())) <= 120
    accounts = voxcast(*words, "--json").json["recon"]["ways"]
    assert accounts["clairvoyant"]["runs"] == 24
    assert accounts["clairvoyant"]["normalised_cost"] == pytest.approx(1.0)
    assert "recon: 24 runs in the order of their starts" in voxcast(*words, "--online").out


CPU, GPU = Configuration("cpu", 2), Configuration("gpu", 2, 1)


def measure(folder: Path, configuration: Configuration, seconds: float) -> None:
    for n in range(6):
        for repeat in range(2):
            of = cell(repeat, configuration=configuration, volume_id=f"v{n}", subject=f"s{n}")
            used = 4 * 10**9 if configuration.gpus else None
            took = seconds * (1 + n / 10) * (1 + repeat / 100)
            write_run(folder, of, runtime_s=took, peak_rss_bytes=10**9, peak_gpu_bytes=used)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The CPU's runs were recorded for good, the GPU's lie where they were measured."""
    (tmp_path / "params.yaml").write_text("")
    measure(tmp_path / "measured", CPU, 20.0)
    collect(tmp_path / "measured", tmp_path / "data" / "history" / "first")
    measure(tmp_path / "data" / "runs" / "gpu", GPU, 4.0)
    return tmp_path


def test_devices_are_compared(project: Path) -> None:
    answer = voxcast("history", "compare", project=project)
    out, err = answer.out, answer.err
    assert "app, 2 CPUs: whole run: 5×" in out
    assert "24 runs on record" in err


@pytest.mark.parametrize(
    ("remaining", "message"),
    [
        ("history", "no run on a GPU is on record"),
        ("runs", "no run on a CPU is on record"),
        ("nothing", "no run on a CPU or a GPU is on record"),
    ],
)
def test_a_side_without_runs_is_reported(project: Path, remaining: str, message: str) -> None:
    for name in {"history", "runs"} - {remaining}:
        (project / "data" / name).rename(project / f"away-{name}")
    assert message in voxcast("history", "compare", project=project).out
    report = voxcast("history", "compare", "--json", project=project).json
    assert message in report["missing"]
    assert report["comparisons"] == []


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("gone", "gone: no such folder"),
        ("data", "data: is not a history of runs; give a folder"),
    ],
)
def test_a_folder_that_is_no_history_is_refused(project: Path, folder: str, message: str) -> None:
    assert message in refusal("history", "compare", folder, cwd=project)
