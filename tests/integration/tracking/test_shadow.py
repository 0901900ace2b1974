"""A challenger in shadow, in a real registry: it is registered, and never the champion by that."""

from pathlib import Path

import pytest
from test_registry import APP, RULE, promoted, trained

from champions import champion_version, registered_bundle
from voxcast.errors import ModelError
from voxcast.files import sha256_folder
from voxcast.serving.registry.lookup import CHALLENGER
from voxcast.serving.registry.model_files import champion_folder
from voxcast.tracking import runs, shadow
from voxcast.tracking.receipts import receipts
from voxcast.tracking.registered_versions import versions
from voxcast.tracking.versions import roll_back

QUANTILE = RULE.upper_quantile


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_challenger_that_was_refused_answers_in_shadow(project: Path) -> None:
    uri = runs.tracking_uri(project)
    promoted(project, "median", "ridge")
    promoted(project, "ridge", app="tile")
    session, refused = runs.connect(project), trained(project, ("median",))
    with pytest.raises(ModelError, match="the registry has no challenger in shadow"):
        champion_folder(uri, CHALLENGER)
    receipt = shadow.start_newest(session, project, APP, refused, QUANTILE)
    assert (receipt["version"], receipt["champion"], receipt["kind"]) == ("3", "2", "shadow")
    assert champion_version(project).number == "2"
    in_shadow = shadow.version_in_shadow(uri)
    assert in_shadow is not None
    assert (in_shadow.number, in_shadow.is_champion) == ("3", False)
    assert in_shadow.tags["reason"] == "shadow"
    third, second = (registered_bundle(project, number) for number in "32")
    assert third.apps["segment"].promotion.family == "median"
    assert third.apps["tile"] == second.apps["tile"]
    assert champion_folder(uri, CHALLENGER) == third.folder.parent.parent
    assert champion_folder(uri) == second.folder.parent.parent

    # Another takes its place, and the first stays registered.
    shadow.start_version(project, "1")
    assert [v.number for v in versions(uri) if v.is_challenger] == ["1"]
    tags = next(v.tags for v in versions(uri) if v.number == "3")
    assert tags[shadow.SINCE] <= tags[shadow.UNTIL]
    shadow.end(project)
    assert shadow.version_in_shadow(uri) is None
    actions = [r["action"] for r in receipts(project) if r["kind"] == "shadow"]
    assert actions == ["started", "started", "ended"]
    with pytest.raises(ModelError, match="version 9: no such version"):
        shadow.start_version(project, "9")


def test_a_damaged_forecaster_is_not_repaired_with_one_in_shadow(project: Path) -> None:
    promoted(project, "median")
    promoted(project, "ridge", app="tile")
    session, challenger = runs.connect(project), trained(project, ("ridge",))
    shadow.start_newest(session, project, APP, challenger, QUANTILE)
    champion = registered_bundle(project, "2")
    (champion.forecaster_folder("segment") / "forecaster.json").write_text("{")
    receipt = roll_back(project, app="segment")
    assert receipt["to_version"] == "1"
    repaired = registered_bundle(project, receipt["version"]).forecaster_folder("segment")
    first = registered_bundle(project, "1").forecaster_folder("segment")
    assert sha256_folder(repaired) == sha256_folder(first)
