"""Verbs answer what they answered when it was recorded, to the printed digit."""

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from champions import register_champion
from small_head import write_head
from voxcast.cli import main

PROJECT = Path(__file__).parents[2]
GOLDENS = PROJECT / "tests" / "goldens" / "verbs"
OF_A_CHAMPION = ("recommend", "recommend_safe", "recommend_cluster", "requests_image")
# Fitted numbers differ by processor, most in a replay, which fits models in each fold: 4e-2 seen.
TOLERANCE = dict.fromkeys(OF_A_CHAMPION, 1e-4) | {"replay": 5e-2}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each number and name of an answer by its place; sentences may be worded differently."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from leaves(item, f"{path}[{position}]")
    elif not (isinstance(value, str) and " " in value):
        yield path, value


def answered(arguments: list[str]) -> object:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*arguments, "--json"]) == 0
    return json.loads(out.getvalue())


def compare(name: str) -> None:
    recorded = json.loads((GOLDENS / f"{name}.json").read_text())
    today = dict(leaves(answered(recorded["arguments"])))
    for path, expected in leaves(recorded["answer"]):
        if isinstance(expected, float) or (name == "replay" and type(expected) is int):
            expected = pytest.approx(expected, rel=TOLERANCE.get(name, 1e-8), abs=1e-12)
        assert today[path] == expected, path


@pytest.mark.parametrize(
    "name", sorted({path.stem for path in GOLDENS.glob("*.json")} - set(OF_A_CHAMPION))
)
def test_recorded_runs_and_laws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    compare(name)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the clusters of this repository, a champion and an image."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copy2(PROJECT / "params.yaml", folder)
    shutil.copytree(PROJECT / "conf", folder / "conf")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        register_champion(folder, 40)
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=80)
    return folder


@pytest.mark.parametrize("name", OF_A_CHAMPION)
def test_a_champion(name: str, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab)
    compare(name)
