"""Rendering against recorded text, images on disk, and one container really run and measured."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from measured import measured_run
from voxcast.apps import containers
from voxcast.apps.app import app_version, command, container_facts, environment
from voxcast.apps.containers import ENGINES, RUN_VARIABLE, staged, wrap
from voxcast.errors import ConfigError, ImageError, RunError
from voxcast.records import App, Configuration

RECORDED = Path(__file__).with_name("containers.txt")
BINDS = [
    ("/data/it's $HOME; a set/inputs", "/INPUTS", True),
    ("/data/it's $HOME; a set/out", "/OUTPUTS", False),
]
PROGRAM = ["/opt/tool/run.sh", "--image=/INPUTS/sub-01 (1)_T1w.nii.gz", "--note", 'a "b" $c `d`']


def rendered(engine: str) -> list[str]:
    return wrap(
        engine,
        "/images/tool 1.0.sif",
        PROGRAM,
        binds=BINDS,
        env={"OMP_NUM_THREADS": "2"},
        gpus=1,
    )


def test_every_engine_renders_as_recorded():
    recorded = dict(
        line.split(": ", 1) for line in RECORDED.read_text().splitlines() if line[:1] != "#"
    )
    assert {engine: shlex.join(rendered(engine)) for engine in ENGINES} == recorded


@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ("apptainer", "/data/12:30"),
        ("singularity", "/data/a,b"),
        ("charliecloud", "/data/12:30"),
    ],
)
def test_a_path_that_an_engine_would_cut_is_refused(engine, path):
    with pytest.raises(ConfigError, match=f"{engine} cannot bind a path with .*; move"):
        wrap(engine, "image", ["tool"], binds=[(path, "/INPUTS", True)])


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """Return a function that makes a script the program of an engine, the only one on the PATH."""
    folder = tmp_path / "engines"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")

    def install(engine, script="exit 1"):
        program = folder / ENGINES[engine].program
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return install


def test_missing_programs_and_images_are_reported_with_a_remedy(tmp_path, engines):
    if shutil.which("apptainer") is None:
        with pytest.raises(RunError, match="apptainer is not installed; install apptainer"):
            containers.check_image("apptainer", "image.sif")
    engines("apptainer")
    with pytest.raises(RunError, match=r"apptainer pull image\.sif docker://some/image:1"):
        containers.check_image("apptainer", "some/image:1")
    engines("charliecloud")
    with pytest.raises(
        RunError, match=r"INPUTS: the image lacks this bind target; create the folder"
    ):
        containers.check_image("charliecloud", str(tmp_path), ["/INPUTS"])
    (tmp_path / "INPUTS").mkdir()
    containers.check_image("charliecloud", str(tmp_path), ["/INPUTS"])


def test_the_digest_follows_the_content_of_a_file_and_the_listing_of_a_folder(tmp_path):
    image = tmp_path / "tool.sif"
    image.write_bytes(b"one")
    first = containers.digest("apptainer", str(image))
    assert first == containers.digest("charliecloud", str(image))
    image.write_bytes(b"three")
    assert containers.digest("apptainer", str(image)) != first
    folder = tmp_path / "tool"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "tool").write_text("1")
    (folder / "lib").symlink_to("bin")
    listed = containers.digest("charliecloud", str(folder))
    (folder / "INPUTS").mkdir()  # a place to bind to changes nothing
    assert containers.digest("charliecloud", str(folder)) == listed
    (folder / "bin" / "tool").write_text("22")
    assert containers.digest("charliecloud", str(folder)) != listed


def test_exactly_one_image_is_staged(tmp_path):
    stored = tmp_path / "stored.nii.gz"
    stored.write_bytes(b"voxels")
    image = tmp_path / "sub-01 T1w.nii.gz"
    image.symlink_to(stored)
    app = App(
        name="tool", version="1", argv=("tool",), container={"cpu": "image"},
        binds={"/in": "{inputs}", "/data": "{bids}", "/out": "{out}"},
    )  # fmt: skip
    for engine, linked in (("apptainer", True), ("charliecloud", False)):
        configuration = Configuration("cpu", 1, container_engine=engine)
        with staged(app, image, tmp_path / "run" / "out", configuration):
            (put,) = (tmp_path / "run" / "inputs").iterdir()
            (scan,) = (tmp_path / "run" / "bids").rglob("*.nii.gz")
            assert (put.name, scan.name) == (image.name, "sub-01_T1w.nii.gz")
            for path in (put, scan):
                assert path.read_bytes() == b"voxels"
                assert path.samefile(stored) == linked
                assert not path.is_symlink()
        assert not (tmp_path / "run" / "inputs").exists()
    missing = tmp_path / "none.nii.gz"
    run = staged(app, missing, tmp_path / "run" / "out", configuration)
    with pytest.raises(ImageError, match="no such file"), run:
        pass


@pytest.fixture(scope="session")
def busybox_image(tmp_path_factory) -> Path:
    """A folder with one static program, out of a Debian package; VOXCAST_TEST_IMAGE wins."""
    if image := os.environ.get("VOXCAST_TEST_IMAGE"):
        return Path(image)
    folder = tmp_path_factory.mktemp("image")
    package = folder / "package"
    package.mkdir()
    try:
        subprocess.run(
            ["apt-get", "download", "busybox-static"],
            cwd=package,
            check=True,
            capture_output=True,
            timeout=60,
        )
        (package_file,) = package.glob("busybox-static_*.deb")
        subprocess.run(
            ["dpkg", "-x", package_file, folder / "root"], check=True, capture_output=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        pytest.skip(
            "no image: busybox-static cannot be downloaded by apt-get; set "
            "VOXCAST_TEST_IMAGE to an image folder with /bin/busybox"
        )
    for name in ("dev", "etc", "proc", "sys", "tmp", "INPUTS", "OUTPUTS"):
        (folder / "root" / name).mkdir(exist_ok=True)
    for name in ("passwd", "group"):  # Charliecloud binds its own over them
        (folder / "root" / "etc" / name).touch()
    return folder / "root"


@pytest.mark.skipif(shutil.which("ch-run") is None, reason="needs Charliecloud's ch-run")
def test_a_containerised_application_is_run_and_measured(tmp_path, busybox_image, monkeypatch):
    monkeypatch.delenv("USER", raising=False)
    monkeypatch.setenv("LEAKED", "from outside")
    script = (
        "busybox cp -r /INPUTS/. /OUTPUTS && busybox env > /OUTPUTS/env.txt"
        " && busybox touch /tmp/scratch /INPUTS/sub-01*"
        # a buffer of 40 MB, filled often enough to be seen
        " && busybox dd if=/dev/zero of=/dev/null bs=40M count=400"
        " && busybox echo '***copy time: 0.25 seconds'"
    )
    app = App(
        name="copy",
        version="1",
        argv=("/bin/busybox", "sh", "-c", script),
        container={"cpu": str(busybox_image)},
        binds={"/INPUTS": "{inputs}", "/OUTPUTS": "{out}", "/tmp": "{scratch}"},  # noqa: S108
    )
    image, out = tmp_path / "sub-01 it's_T1w.nii.gz", tmp_path / "run 1" / "out"
    image.write_bytes(b"voxels")
    out.mkdir(parents=True)
    configuration = Configuration("cpu", 1, container_engine="charliecloud")
    before = image.stat().st_mtime_ns
    containers.check_image("charliecloud", str(busybox_image), list(app.binds))
    with staged(app, image, out, configuration):
        profile = measured_run(
            command(app, image, out, configuration, {}),
            out.parent,
            env=environment(configuration),
            time_limit_s=30,
        )
        assert (out.parent / "scratch" / "scratch").exists()
    assert profile.outcome == "completed", (out.parent / "app.log").read_text()
    assert (out / image.name).read_bytes() == b"voxels"
    variables = dict(line.split("=", 1) for line in (out / "env.txt").read_text().splitlines())
    assert variables["OMP_NUM_THREADS"] == "1"
    assert RUN_VARIABLE in variables
    assert "LEAKED" not in variables
    assert image.stat().st_mtime_ns == before  # the program got a copy
    assert sorted(path.name for path in out.parent.iterdir() if path.is_dir()) == ["out"]
    assert profile.peak_rss_bytes > 30e6  # of the program inside, not of what started it
    assert 0 < profile.cpu_s < 30
    facts = container_facts(app, configuration)
    assert facts["image"] == str(busybox_image)
    assert app_version(app, configuration) == f"1+image{facts['digest'][7:19]}"
