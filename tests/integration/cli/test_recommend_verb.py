"""``voxcast recommend`` with a real champion of planted runs, in a registry of its own."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest
import yaml

from commands import Answer, voxcast
from lab import lab
from voxcast.jobs.task import TABLE_COLUMNS, from_file
from voxcast.quantities import slurm_seconds

PROJECT = Path(__file__).parents[3]
# A machine of known size, whatever the tests run on.
HERE = ("-S", "cluster.node_types.machine.cores=4", "-S", "cluster.node_types.machine.memory=8GB")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = lab(tmp_path_factory.mktemp("lab"))
    for name, edge in (("usual", 100), ("small", 70), ("huge", 240)):
        grid = np.zeros((edge, edge, edge), dtype=np.int16)
        head = slice(edge // 8, 7 * edge // 8)
        grid[head, head, head] = 500
        image = nibabel.Nifti1Image(grid, np.diag([2.0, 2.0, 2.5, 1.0]))
        image.set_sform(image.affine, code=1)
        nibabel.save(image, folder / f"{name}.nii.gz")
    absurd = nibabel.Nifti1Image(
        np.eye(9, dtype=np.int16)[:, :, None] * np.ones(9, np.int16), np.diag([5000, 2, 2, 1])
    )
    nibabel.save(absurd, folder / "absurd.nii.gz")
    (folder / "note.nii.gz").write_text("not an image")
    return folder


@pytest.fixture
def recommend(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Return a function that runs the verb in the project."""
    monkeypatch.chdir(project)

    def run(*arguments: str, code: int = 0) -> Answer:
        return voxcast("recommend", *arguments, code=code)

    return run


ROW = {
    "node_type", "partition", "device", "cpus", "gpus", "walltime_s", "memory_bytes", "wait_s",
    "runtime_s_median", "runtime_s_upper", "peak_rss_bytes_median", "peak_rss_bytes_upper",
    "turnaround_s", "turnaround_bound_s", "turnaround_expected_s",
    "usd", "usd_bound", "usd_expected", "core_h", "risk", "calibrated", "out_of_range",
    "out_of_range_reason", "pareto", "excluded", "measured", "host_class",
}  # fmt: skip


def test_the_whole_answer_as_json(recommend) -> None:
    content = recommend("usual.nii.gz", "--cluster", "osc", "--json").json
    assert set(content) == {
        "cluster", "walltime_step_s", "policy", "limits", "host_classes", "machine", "parameters",
        "images",
    }  # fmt: skip
    assert content["parameters"] == {}
    assert content["cluster"] == "osc"
    assert content["policy"] == {
        "name": "balanced", "confidence": 0.95, "time_margin": 0.5, "memory_margin": 0.1,
        "hour_in_core_hours": 2.0, "risk": pytest.approx(0.1),
    }  # fmt: skip
    assert content["limits"] == {"deadline_s": None, "budget_usd": None}
    (image,) = content["images"]
    assert set(image) == {
        "image", "app", "family", "input_level", "chosen", "nearest", "why", "configurations"
    }  # fmt: skip
    assert (image["image"], image["app"], image["family"], image["input_level"]) == (
        "usual.nii.gz", "segment", "ridge", "volume"
    )  # fmt: skip
    assert len(image["configurations"]) == 2 * 2  # CPUs by node types
    for row in image["configurations"]:
        assert set(row) == ROW
        assert 0 < row["runtime_s_median"] <= row["runtime_s_upper"]
        assert row["walltime_s"] >= 1.5 * row["runtime_s_upper"]
        assert row["walltime_s"] % 60 == 0
        assert row["memory_bytes"] >= 1.1 * row["peak_rss_bytes_upper"]
        assert row["memory_bytes"] % 2**20 == 0
        assert row["usd"] == pytest.approx(row["runtime_s_median"] / 3600 * 0.003 * row["cpus"],
                                           abs=0.003 / 3600 * row["cpus"])  # fmt: skip
        assert row["usd"] <= row["usd_expected"]
        with_gpus = row["node_type"] == "pitzer_gpu"
        assert row["excluded"] == ("does not need a node with GPUs" if with_gpus else None)
        assert row["calibrated"]
        assert (row["out_of_range"], row["risk"]) == ([], pytest.approx(0.1))
    # Two CPUs take 0.6 / 1.05 of the time, which is worth it at two core-hours an hour; but of a
    # run of seconds most of a minute, the shortest possible request, is at risk.
    assert image["chosen"]["cpus"] == 1
    assert image["chosen"] in image["configurations"]
    assert image["nearest"] is None
    assert any(row["pareto"] for row in image["configurations"])


def test_the_planted_law_is_recovered(recommend) -> None:
    content = recommend("usual.nii.gz", "--json", *HERE).json
    one_cpu, two_cpus = content["images"][0]["configurations"]
    assert two_cpus["runtime_s_median"] / one_cpu["runtime_s_median"] == pytest.approx(
        0.6 / 1.05, rel=0.02
    )
    assert one_cpu["peak_rss_bytes_median"] == pytest.approx(2e8 + 80 * 10**6, rel=0.05)


def test_policies_differ(recommend) -> None:
    chosen = {
        policy: recommend("usual.nii.gz", "--policy", policy, "--json", *HERE).json["images"][0]
        for policy in ("safe", "balanced", "cheapest")
    }
    assert [image["chosen"]["cpus"] for image in chosen.values()] == [2, 2, 1]
    upper = [image["configurations"][0]["runtime_s_upper"] for image in chosen.values()]
    assert upper == sorted(upper, reverse=True)
    # 99 % cannot be promised by forty subjects, and what cannot be promised has no stated risk.
    assert not chosen["safe"]["chosen"]["calibrated"]
    assert chosen["safe"]["chosen"]["risk"] is None
    text = recommend("usual.nii.gz", "--policy", "safe", *HERE).out
    assert "not calibrated" in text
    assert "of such requests are too small" not in text


def test_hard_limits(recommend) -> None:
    def chosen(*limits: str, code: int = 0) -> dict:
        arguments = (
            "usual.nii.gz",
            "--json",
            "--cluster",
            "osc:serial",
            *limits,
        )
        content = recommend(*arguments, code=code).json
        return content["images"][0]

    assert chosen("--deadline", "2h")["chosen"]["cpus"] == 1
    assert chosen("--budget", "0.50")["chosen"]["cpus"] == 2
    none = chosen("--deadline", "0.1s", code=2)
    assert none["chosen"] is None
    assert none["nearest"]["cpus"] in (1, 2)
    assert none["why"].startswith("no configuration can finish within 0.1")
    soon = (datetime.now().astimezone() + timedelta(hours=1)).isoformat()
    assert chosen("--deadline", soon)["chosen"]["cpus"] == 1


def test_text_output(recommend) -> None:
    text = recommend("usual.nii.gz", "--deadline", "2h", "--cluster", "osc").out
    first, reason = text.splitlines()[:2]
    assert first.startswith(
        "usual.nii.gz: segment on osc: request cpu, 1 CPU on pitzer, --time=00:0"
    )
    assert reason.startswith(
        "  reason: the cheapest of the configurations that finish within 2 h 0 min"
    )
    assert "* cpu, 1 CPU on pitzer" in text
    assert "at most 10 % of such requests are too small" in text
    assert "waiting times of this cluster are unknown" in text
    assert "--mem is in Slurm's M, of 2^20 bytes" in text
    none = recommend("usual.nii.gz", "--budget", "0", "--cluster", "osc", code=2)
    assert "no request" in none.out
    assert "nearest is" in none.out
    assert none.err == ""
    assert max(map(len, (text + none.out).splitlines())) <= 100


def test_the_machine_that_was_measured_is_named(recommend) -> None:
    arguments = ("usual.nii.gz", "--cluster", "osc", "--cpus", "2,4")
    content = recommend(*arguments, "--json").json
    assert content["host_classes"] == ["here"]
    rows = content["images"][0]["configurations"]
    assert {row["cpus"]: row["measured"] for row in rows} == {2: True, 4: False}
    text = recommend(*arguments).out
    assert "times are those of here; pitzer, pitzer_gpu may be faster or slower" in text
    assert "cpu, 4 CPUs on pitzer ?" in text
    assert "? never measured: time and risk of this row are a guess" in text
    assert max(map(len, text.splitlines())) <= 100
    alike = ("-S", "cluster.node_types.pitzer.host_class=here")
    text = recommend(*arguments, *alike).out
    assert "times are those of here; pitzer_gpu may be faster or slower" in text
    slurm = recommend("usual.nii.gz", "--cluster", "osc", "--cpus", "4", "--as", "sbatch").out
    assert "# cpu, 4 CPUs: never measured, so that its time and risk are a guess" in slurm


def test_sbatch_lines_of_one_image(recommend) -> None:
    row = recommend("usual.nii.gz", "--cluster", "osc", "--json").json["images"][0]
    lines = recommend("usual.nii.gz", "--cluster", "osc", "--as", "sbatch").out.splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert options == [
        "--job-name=segment", "--partition=serial", "--nodes=1", "--ntasks=1",
        "--cpus-per-task=1", "--time=00:01:00",
        f"--mem={row['chosen']['memory_bytes'] // 2**20}M",
    ]  # fmt: skip
    assert all(line.startswith("#") for line in lines)
    assert "# at most 10 % of such requests are too small" in lines
    refused = recommend("usual.nii.gz", "--as", "sbatch", *HERE, code=2)
    assert refused.err.splitlines()[-1].startswith("voxcast: local: has no partitions of Slurm")


def test_options_of_sbatch_are_words_that_no_shell_changes(recommend, project: Path) -> None:
    hostile = "a;touch $(echo x) `id` 'b\n.nii.gz"
    shutil.copy2(project / "usual.nii.gz", project / hostile)
    printed = recommend(hostile, "--cluster", "osc", "--as", "args").out
    lines = recommend(hostile, "--cluster", "osc", "--as", "sbatch").out.splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert printed.splitlines() == [" ".join(options)]
    assert re.fullmatch(r"[\w.:= -]+", printed.rstrip("\n"), re.ASCII)
    # A shell splits them as they are, whatever the name of the image is.
    echo = subprocess.run(
        ["bash", "-c", 'args=$1; printf "%s\n" $args', "bash", printed.rstrip()],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert echo.stdout.splitlines() == options
    several = recommend("usual.nii.gz", "huge.nii.gz", "--cluster", "osc", "--as", "args", code=2)
    assert several.err.splitlines()[-1].startswith("voxcast: options of sbatch: are for one image")


def test_blocks_of_babs_hold_the_requests_of_their_images(recommend) -> None:
    images = ("usual.nii.gz", "small.nii.gz")
    content = recommend(*images, "--cluster", "osc", "--json").json
    (block,) = yaml.safe_load_all(recommend(*images, "--cluster", "osc", "--as", "babs").out)
    resources = block["cluster_resources"]
    rows = [image["chosen"] for image in content["images"]]
    assert slurm_seconds(resources["hard_runtime_limit"]) == max(r["walltime_s"] for r in rows)
    largest = max(row["memory_bytes"] for row in rows)
    assert resources["hard_memory_limit"] == f"{largest // 2**20}M"
    assert resources["number_of_cpus"] == str(rows[0]["cpus"])
    assert "#SBATCH --partition=serial" in resources["customized_text"].splitlines()
    assert all(isinstance(value, str) for value in resources.values())


def test_a_table_for_workflow_engines(recommend, tmp_path: Path) -> None:
    images = ("usual.nii.gz", "huge.nii.gz")
    content = recommend(*images, "--cluster", "osc", "--json").json
    output = recommend(*images, "--cluster", "osc", "--as", "csv", "--out", f"{tmp_path}/r.csv")
    assert output.out == ""
    assert "r.csv: requests of 2 images" in output.err
    rows = pd.read_csv(tmp_path / "r.csv").to_dict("records")
    assert list(rows[0]) == list(TABLE_COLUMNS)
    assert [row["sample"] for row in rows] == ["usual", "huge"]
    for row, image in zip(rows, content["images"], strict=True):
        chosen = image["chosen"]
        assert row["image"] == str(Path(image["image"]).absolute())
        assert {
            name: row[name] for name in ("partition", "node_type", "device", "cpus", "gpus")
        } == {name: chosen[name] for name in ("partition", "node_type", "device", "cpus", "gpus")}
        assert row["time_min_1"] == math.ceil(chosen["walltime_s"] / 60)
        assert row["memory_mib_1"] * 2**20 == chosen["memory_bytes"]
        assert slurm_seconds(row["time"]) == 60 * row["time_min_1"]
        for name in ("time_min", "memory_mib"):
            first, second, third = (row[f"{name}_{n}"] for n in (1, 2, 3))
            assert 1.49 * first < second
            assert 1.49 * second < third
    # The times are those that `submit` would request one after the other.
    _, tasks = from_file(content, tmp_path)
    for row, task in zip(rows, tasks, strict=True):
        rungs = [math.ceil(s / 60) for s in task.requests.walltimes_s[:3]]
        assert [row[f"time_min_{n}"] for n in range(1, len(rungs) + 1)] == rungs


def test_an_extrapolation_is_flagged(recommend) -> None:
    content = recommend("huge.nii.gz", "--json", *HERE).json["images"][0]["chosen"]
    assert content["out_of_range"]
    sentence = r"this volume is \d+\.\d times larger than any that was .* million voxels, at most"
    assert re.search(sentence, content["out_of_range_reason"])
    assert not content["calibrated"]
    assert content["risk"] is None
    text = recommend("huge.nii.gz", *HERE).out
    assert re.search(r"out of range: this volume is \d+\.\d times larger than any that was", text)
    assert "extrapolated, so the risk is unknown" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--deadline", "2020-01-01T00:00"), "--deadline: is in the past"),
        (("--deadline", "0001-01-01"), "--deadline: "),
        (("--deadline", "1e306h"), "--deadline: not a duration or a time: '1e306h'"),
        (("-S", "cluster=null"), "conf"),
        (("--deadline", "0s"), "deadline: must be in the future and finite"),
        (("--deadline=-2h",), "not a duration or a time"),
        (("--deadline", "-2h"), "not a duration or a time"),
        (("--deadline",), "--deadline: needs a value"),
        (("--as", "yaml"), "--as: "),
        (("--as", "csv"), "--out: is needed for a table"),
        (("--xyzzy",), "--xyzzy: unknown option; see `voxcast recommend --help`"),
        (("--deadline", "soon"), "not a duration"),
        (("--budget=-1",), "cannot be negative"),
        (("--budget", "much"), "not an amount"),
        (("--cluster", "moon"), "moon: unknown cluster; choose from"),
        (
            ("--as", "sbatch"),
            "as it is this machine; choose --cluster from cloud, osc, private, or copy a file",
        ),
        (("--policy", "bold"), "bold: unknown policy; choose from"),
        (("--cluster", "local:moon"), "moon: unknown partition; local has here"),
        (("--cpus", "64", *HERE), "no configuration fits; cpu, 64 CPUs on machine needs more"),
        (("--app", "other"), "other: unknown application"),
        (("-S", "cluster.node_types.machine.usd_per_core_hour=-1"), "must be at least 0"),
        (("--project", "conf"), "not a project"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    recommend, arguments: tuple[str, ...], message: str
) -> None:
    result = recommend("usual.nii.gz", *arguments, code=2)
    assert message in result.err.splitlines()[-1]
    assert result.out == ""
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "images", [("absurd", "usual", "small"), ("usual", "absurd"), ("absurd",)]
)
def test_an_image_that_the_model_refuses_is_named_and_the_others_are_answered(
    recommend, images: tuple[str, ...]
) -> None:
    output = recommend(*(f"{name}.nii.gz" for name in images), "--json", *HERE, code=2)
    (line,) = output.err.strip().splitlines()
    assert "absurd.nii.gz" in line
    assert "spacing_i_mm: must be at most 1000, not 5000" in line
    answered = [name for name in images if name != "absurd"]
    if answered:
        content = json.loads(output.out)
        assert [Path(i["image"]).name for i in content["images"]] == [
            f"{name}.nii.gz" for name in answered
        ]
        alone = recommend("usual.nii.gz", "--json", *HERE).json["images"][0]
        assert alone in content["images"]


def test_submit_plans_what_recommend_chooses(recommend, project: Path) -> None:
    arguments = ("usual.nii.gz", "small.nii.gz", "--cluster", "osc")
    content = recommend(*arguments, "--json").json
    plan = voxcast("submit", *arguments, "--dry-run", "--json").json
    assert plan["app"]["argv"] == ["cp", "{image}", "{out}/copy"]
    for task, image in zip(plan["tasks"], content["images"], strict=True):
        row = image["chosen"]
        assert task["image"] == str(project / image["image"])
        assert task["requests"]["walltimes_s"][0] == row["walltime_s"]
        assert task["requests"]["memories_bytes"] == [row["memory_bytes"]]
        assert (task["requests"]["cpus"], task["requests"]["partition"]) == (
            row["cpus"],
            row["partition"],
        )
        assert task["max_walltime_s"] == 168 * 3600
        assert task["prediction"]["risk"] == pytest.approx(0.1)
    # The recommendation itself is a plan too.
    (project / "requests.json").write_text(json.dumps(content))
    again = voxcast("submit", "requests.json", "--dry-run", "--json").json
    firsts = [[task["requests"]["walltimes_s"][0] for task in listed["tasks"]]
              for listed in (plan, again)]  # fmt: skip
    assert firsts[0] == firsts[1]
