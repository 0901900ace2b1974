"""Characteristics of a laboratory: functions of the project, computed with all others."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from training_project import write_volume
from voxcast.errors import ConfigError
from voxcast.images.catalogue import ON_RECORD, build_catalogue, read_on_record
from voxcast.images.characteristics import (
    LabCharacteristic,
    check_lab_characteristics,
    load_lab_characteristics,
    versions_of,
)
from voxcast.images.sources import refresh

CODE = """
import math
def bright_ml(volume):
    share = float((volume.intensity > 0.9).mean())
    return share * math.prod(volume.header.shape) * math.prod(volume.header.spacing_mm) / 1000
def picky(volume):
    if volume.header.shape[0] > 30:
        raise ValueError("too wide")
    return 1
def text(volume):
    return "many"
"""


def lab(module: str, function: str = "bright_ml", version: int = 1) -> LabCharacteristic:
    return LabCharacteristic(
        "bright_ml", f"{module}:{function}", "ml", "strided grid", "definition", version
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"lab_{tmp_path.name}.py").write_text(CODE)
    for seed in (1, 2):
        write_volume(tmp_path / "images" / f"head{seed}.nii.gz", seed)
    return tmp_path


def rows(project: Path, entry: LabCharacteristic) -> pd.DataFrame:
    declared = {"bright_ml": entry}
    loaded = load_lab_characteristics(declared, project)
    build_catalogue(refresh(project / "images"), project / "out", 32, 8, lab=loaded)
    return read_on_record(project / "out" / ON_RECORD, versions_of(declared))


def test_its_values_are_in_the_catalogue_with_their_version(project: Path) -> None:
    module = f"lab_{project.name}"
    first = rows(project, lab(module))
    assert (first["bright_ml"] > 0).all()
    assert "bright_ml" not in read_on_record(project / "out" / ON_RECORD)
    declared = {"bright_ml": lab(module, version=2)}
    later = read_on_record(project / "out" / ON_RECORD, versions_of(declared))
    assert later["bright_ml"].isna().all()
    assert later["foreground_voxels"].notna().all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("text", "returned 'many', not a finite number"),
        ("picky", "ValueError: too wide"),
    ],
)
def test_a_function_that_fails_leaves_its_value_unknown(
    project: Path, function: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_volume(project / "images" / "head3.nii.gz", 3)
    if function == "picky":
        (project / f"lab_{project.name}.py").write_text(CODE.replace("> 30", "> 29"))
    values = rows(project, lab(f"lab_{project.name}", function))
    assert values["bright_ml"].isna().all()
    assert values["foreground_voxels"].notna().all()
    assert "bright_ml: not computed for 3 of 3 volumes" in caplog.text
    assert message in caplog.text


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (lab("no_such_module_here"), "no_such_module_here cannot be imported"),
        (lab("json", "no_such"), "json has no function no_such"),
    ],
)
def test_code_that_is_missing_is_one_line(
    project: Path, entry: LabCharacteristic, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_lab_characteristics({"bright_ml": entry}, project)


@pytest.mark.parametrize(
    ("name", "function", "version", "message"),
    [
        ("noise_ratio", "a:b", 1, "cannot be the name"),
        ("shape_i", "a:b", 1, "cannot be the name"),
        ("Über", "a:b", 1, "cannot be the name"),
        ("load_ml", "a.b", 1, "needs module:function"),
        ("load_ml", "a:b", 0, "must be at least 1"),
    ],
)
def test_a_declaration_is_checked_without_importing(
    name: str, function: str, version: int, message: str
) -> None:
    entry = LabCharacteristic(name, function, "ml", "strided grid", "", version)
    with pytest.raises(ConfigError, match=message):
        check_lab_characteristics({name: entry})
