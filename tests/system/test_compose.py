"""compose.yaml, as far as it can be judged without Docker: its keys, commands and variables."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from voxcast.cli import main

PROJECT = Path(__file__).parents[2]
TEXT = (PROJECT / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
VARIABLE = re.compile(r"\$\{(\w+):\?[^}]+\}")  # the form that refuses a missing or empty value
OF_IMAGES = {  # that the images read, by the manuals of their makers
    "postgres": {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"},
    "s3": {"ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"},
    "proxy": set(),
}
OURS = [name for name in SERVICES if name not in OF_IMAGES]


def test_images_have_a_tag_and_nothing_listens_beyond_loopback() -> None:
    for service in SERVICES.values():
        _, _, tag = service["image"].partition(":")
        assert re.fullmatch(r"v?\d+\.\d+[\w.-]*", tag)
        for port in service.get("ports", ()):
            address, outside, inside = port.split(":")
            assert (address, outside) == ("127.0.0.1", inside)
    assert "ports" not in SERVICES["postgres"] | SERVICES["voxcast"]
    assert "network_mode" not in TEXT


def test_secrets_are_in_a_file_that_is_not_in_git() -> None:
    named = set(VARIABLE.findall(TEXT))
    assert len(re.findall(r"\$\{", TEXT)) == len(VARIABLE.findall(TEXT)) + 1  # and a comment
    example = (PROJECT / ".env.example").read_text()
    values = dict(line.split("=") for line in example.splitlines() if not line.startswith("#"))
    assert set(values) == named
    assert not any(values.values())
    for service in SERVICES.values():
        for key, value in service["environment"].items():
            if re.search("PASSWORD|KEY|TOKEN|SECRET", key):
                assert VARIABLE.fullmatch(value), key
    ignored = subprocess.run(["git", "check-ignore", "-q", ".env"], cwd=PROJECT, check=False)
    assert ignored.returncode == 0


def test_our_command_is_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gets as far as the model, and finds none."""
    command = SERVICES["voxcast"]["command"]
    assert command[0] == "voxcast"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("VOXCAST_TOKEN", "0" * 48)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").touch()
    assert main(command[1:]) == 2
    assert "has no champion yet" in capsys.readouterr().err


def test_no_password_is_in_the_command_of_mlflow() -> None:
    command = SERVICES["mlflow"]["command"]
    assert command[:2] == ["mlflow", "server"]
    (store,) = (word for word in command if word.startswith("--backend-store-uri="))
    _, _, address = store.partition("=postgresql+psycopg://")
    assert "@" in address
    assert ":" not in address


def test_the_image_gets_all_files_that_the_package_is_built_from() -> None:
    ignored = (PROJECT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"
    let_in = [line[1:] for line in ignored if line.startswith("!")]
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    included = build["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    needed = [*included, "pyproject.toml", "constraints.txt", "src", build["project"]["readme"],
              *build["project"]["license-files"]]  # fmt: skip
    for path in needed:
        assert any(path == entry or path.startswith(f"{entry}/") for entry in let_in), path
        assert (PROJECT / path).exists()
    extras = set(build["project"]["optional-dependencies"])
    (installed,) = re.findall(r"'\.\[([\w,]+)\]'", (PROJECT / "Dockerfile").read_text())
    assert set(installed.split(",")) <= extras
    for name in OURS:
        assert SERVICES[name]["build"] == "."
    version = re.search(r'"(\d+\.\d+)', (PROJECT / "src/voxcast/__init__.py").read_text())
    assert version is not None
    assert SERVICES["voxcast"]["image"] == f"voxcast:{version[1]}"
