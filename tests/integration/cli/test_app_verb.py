"""``voxcast app``: a real small tool is described, tried and read again."""

import json
import os
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from voxcast import config
from voxcast.cli import main
from voxcast.config.project_files import create_project

TOOL = f"""#!{sys.executable}
import argparse, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--in", dest="image", type=pathlib.Path, required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--memory", default="3000000000,3")
parser.add_argument("--version", action="version", version="smooth 1.4.2")
args = parser.parse_args()
if args.memory != "3000000000,3":
    sys.exit(f"no such memory here: {{args.memory}}")
print("START smooth", flush=True)
time.sleep(0.2 * args.steps)
print("END smooth", flush=True)
(args.out / "size.txt").write_text(f"{{args.image.stat().st_size}} {{args.threads}}")
"""
URGENCIES = ("stops you", "check  ", "costs you")
COMMAND = "smooth --in {image} --out {out} --threads {cpus}"


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/smooth").write_text(TOOL)
    (tmp_path / "bin/smooth").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    image = nibabel.Nifti1Image(np.zeros((50, 40, 10), np.int16), np.eye(4))
    nibabel.save(image, tmp_path / "a head.nii.gz")
    create_project(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def new(*arguments):
    return main(["app", "new", "smooth", "--image", "../a head.nii.gz", *arguments])


def test_an_application_is_written_from_its_command_line_after_a_trial(project, capsys):
    assert new("--command", COMMAND, "--version-command", "smooth --version") == 0
    printed = capsys.readouterr().out
    assert "smooth on a head.nii.gz, cpu, 1 CPU: completed" in printed
    assert "1, proposed from its log" in printed
    assert not any(urgency in printed for urgency in URGENCIES)
    assert "voxcast learn IMAGES --app smooth" in printed

    app = config.load_app("conf/app", "smooth")
    assert app.version == "1.4.2"
    assert app.argv == ("smooth", "--in", "{image}", "--out", "{out}", "--threads", "{threads}")
    assert app.phases == ("smooth",)
    # Half of the time for 0.02 million voxels.
    assert app.expected_s_per_mvoxel == pytest.approx(50 * app.expected_startup_s, rel=0.1)
    config.compose("params.yaml", ["app=[smooth]"])
    assert config.load().apps["smooth"] == app


def test_a_command_gets_the_memory_of_its_run(project, capsys):
    command = COMMAND + " --memory {memory_bytes},{memory_gb}"
    device = project / "conf/device/cpu.yaml"
    assert new("--command", command) == 1  # the memory of this machine
    assert "no such memory here: " in capsys.readouterr().err
    limited = device.read_text().replace("memory: null", "memory: 3GB")
    device.write_text(limited)
    assert new("--command", command) == 0


def test_parameters_are_filled_in(project, capsys):
    command = f"{COMMAND} --steps {{steps}}"
    assert new("--command", command, "--param", "steps=2", "--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert written["app"]["parameters"] == {"steps": 2}
    assert written["trial"]["runtime_s"] > 0.4
    Path("conf/app/smooth.yaml").unlink()
    assert new("--command", command) == 2
    assert "unknown {steps}" in capsys.readouterr().err


def test_what_is_missing_is_named(project, capsys):
    tool = project.parent / "bin/smooth"
    tool.write_text(f"#!{sys.executable}\nprint('hello')\n")
    assert new("--command", "smooth {image}") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(URGENCIES)]
    assert [line[:12].strip() for line in lines] == ["check", *["costs you"] * 3]
    assert "{out} is not in the command" in lines[0]
    for text in ("{cpus}", "--version-command", "no line of its output"):
        assert any(text in line for line in lines[1:]), text
    # The file stands for the version: an edited tool is another one.
    assert config.load_app("conf/app", "smooth").files == (str(tool),)
    Path("conf/app/smooth.yaml").unlink()
    assert new("--command", f"{sys.executable} {tool} {{image}}") == 0
    assert config.load_app("conf/app", "smooth").files == (sys.executable, str(tool))


def test_a_program_that_cannot_be_started_is_refused_and_says_where(project, capsys):
    (project.parent / "bin/smooth").chmod(0o644)
    path = project.parent / "bin/smooth"
    for program, message in (
        ("no-such-tool", "no-such-tool: is not on PATH"),
        ("./tools/none.sh", f"{project}/tools/none.sh: no such program"),
        (str(path), f"{path}: is not executable; run `chmod +x {path}`"),
        (str(project), f"{project}: no such program"),
    ):
        command = f"{program} {{image}} {{out}}"
        # Without an image there is no trial that would fail.
        assert main(["app", "new", "smooth", "--command", command]) == 2
        assert message in capsys.readouterr().err
    assert not Path("conf/app/smooth.yaml").exists()


def test_a_file_that_is_half_written_is_listed_with_the_file_and_the_field(project, capsys):
    Path("conf/app/half.yaml").write_text(
        "defaults: [_base@half, _self_]\nhalf:\n  argv: [tool, '{image}']\n  version: ???\n"
    )
    assert main(["app", "list"]) == 0
    assert "needs half.version" in capsys.readouterr().out


def test_a_failed_trial_shows_the_log_and_writes_nothing(project, capsys):
    assert new("--command", "smooth --image {image} --out {out}") == 1
    printed = capsys.readouterr()
    assert "the following arguments are required: --in" in printed.err
    assert ": failed" in printed.err
    assert not Path("conf/app/smooth.yaml").exists()


def test_a_trial_that_takes_too_long_is_stopped_and_said_to_be(project, capsys, monkeypatch):
    monkeypatch.setattr("voxcast.cli.app.TRIAL_S", 0.5)
    assert new("--command", f"{COMMAND} --steps 1000") == 0
    assert "the trial was stopped" in capsys.readouterr().out
    written = yaml.safe_load(Path("conf/app/smooth.yaml").read_text())["smooth"]
    assert "expected_startup_s" not in written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--command", "smooth {image} > {out}"], "> needs a shell"),
        (["--command", "smooth {imge}"], "unknown {imge}"),
        (["--command", "smooth"], "does not name the image"),
        (["--command", "smooth 'in {image}"], "cannot be split (No closing quotation)"),
        (["--command", "smooth", "--in", "{image}", "--out", "{out}"], "needs quotes around"),
        (["--unheard"], "--unheard: unknown option"),
        (["--command", " "], "is empty"),
        (["--command", "smooth {image} ${HOME}"], "${HOME} needs a shell"),
        (["--command", COMMAND, "--param", "steps"], "needs NAME=VALUE"),
        (["--command", COMMAND, "--version-command", "no-such-tool"], "prints no version"),
        (["--template", "unheard"], "unknown template"),
        ([], "needs --command or --template"),
    ],
)
def test_a_wrong_description_is_refused_in_one_line(project, capsys, arguments, message):
    assert new(*arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("voxcast: ")
    assert message in error
    assert not Path("conf/app/smooth.yaml").exists()


def test_a_name_that_exists_or_cannot_be_one_is_refused(project, capsys):
    for name, message in (("fs-7.4", "letters, digits"), ("ants_segment", "exists already")):
        assert main(["app", "new", name, "--command", COMMAND]) == 2
        assert message in capsys.readouterr().err


def test_a_template_is_written_with_its_sources_and_what_it_needs(project, capsys):
    assert main(["app", "new", "thickness", "--template", "recon-all"]) == 0
    printed = capsys.readouterr().out
    assert "stops you    recon-all: is not on PATH" in printed
    text = Path("conf/app/thickness.yaml").read_text()
    assert "not run here" in text
    assert "https://surfer.nmr.mgh.harvard.edu" in text
    assert config.load_app("conf/app", "thickness").parameters == {"steps": "all"}
    assert main(["app", "new", "prep", "--template", "fmriprep", "--container"]) == 0
    assert "container_engine in conf/device/cpu.yaml" in capsys.readouterr().out


def test_applications_and_templates_are_listed_and_shown(project, capsys):
    assert main(["app", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "ants_segment" in listed["apps"]
    assert "synthstrip" in listed["templates"]
    assert main(["app", "show", "slant"]) == 0
    assert "SLANT" in capsys.readouterr().out
    assert main(["app", "show", "unheard"]) == 2


def test_a_tool_that_reads_a_dataset_gets_one_with_the_image(project, capsys):
    tool = project.parent / "bin/smooth"
    tool.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        "names = sorted(str(p.relative_to(sys.argv[1])) for p in pathlib.Path(sys.argv[1])"
        ".rglob('*') if p.is_file())\nprint(*names)\n"
        "assert names == ['dataset_description.json', 'sub-01/anat/sub-01_T1w.nii.gz']\n"
    )
    assert new("--command", "smooth {bids} {out}", "--json") == 0
    assert json.loads(capsys.readouterr().out)["trial"]["outcome"] == "completed"
