"""From the best model to the champion: the rule applied to the registry, with a receipt."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from voxcast.models.families import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection import decide, risks, subject_errors
from voxcast.models.validation import Validation
from voxcast.tracking import registry, runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.models.leaderboard import Leaderboard


@dataclass(frozen=True)
class Rule:
    """Numbers of the rule of promotion; see `voxcast.config.EvaluationConfig`."""

    upper_quantile: float
    max_under_request: float
    uncalibrated_factor: float


def promote(
    session: runs.Session,
    validation: Validation,
    table_sha256: str,
    board: Leaderboard,
    models: Path,
    catalogue: Mapping[str, Any],
    rule: Rule,
) -> dict[str, Any]:
    """Register the best family as champion if the rule allows it.

    Parameters
    ----------
    session : Session
        Of the tracking server.
    validation : Validation
        Training runs; the rule is judged on their out-of-fold predictions alone.
    table_sha256 : str
        Hash of the table's file.
    board : Leaderboard
        What tuning found.
    models : Path
        Folder with one forecaster per family.
    catalogue : mapping
        Carried by the model, see `voxcast.serving.answers.ServedCatalogue`.
    rule : Rule
        Numbers of the rule.

    Returns
    -------
    dict
        The receipt.
    """
    table, name = validation.table, board.best
    logs = board.logs(table, name, "volume")
    risk = risks(table, logs, rule.upper_quantile, rule.uncalibrated_factor)
    present = registry.champion()
    decision = decide(
        subject_errors(table, logs),
        None if present is None else _champion_errors(present, validation, board),
        risk,
        rule.max_under_request,
    )
    tags = {
        "family": name,
        "params": json.dumps(board.params(name), sort_keys=True),
        "table_sha256": table_sha256,
        "forecaster_sha256": _folder_sha256(models / name),
        "calibrated": str(_promises(models / name, rule.upper_quantile)).lower(),
        "upper_quantile": f"{rule.upper_quantile:g}",
        "cv_objective": f"{board.families[name]['metrics']['objective']:.6g}",
        "reason": decision.reason,
    }
    version = present
    if decision.promote:
        tags["promoted_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        with TemporaryDirectory() as work:
            version = registry.register(
                _final_run(session, name, table_sha256), models / name, catalogue, Path(work), tags
            )
    return {
        "model": registry.MODEL_NAME,
        "registered": decision.promote,
        "reason": decision.reason,
        "detail": decision.detail,
        "version": None if version is None else version.number,
        "champion": None if version is None else version.tags.get("family"),
        "challenger": {
            "family": name,
            "params": board.params(name),
            "calibrated": tags["calibrated"] == "true",
            "cross_validation": board.families[name]["metrics"],
            "risk_at_upper_quantile": {target: asdict(r) for target, r in risk.items()},
        },
        "upper_quantile": rule.upper_quantile,
        "training": {
            "runs": len(table),
            "subjects": int(table["subject"].nunique()),
            "table_sha256": table_sha256,
        },
    }


def _champion_errors(
    present: registry.Version, validation: Validation, board: Leaderboard
) -> pd.Series | None:
    """Return the champion's errors on these folds: its parameters, fitted on this table.

    Its own predictions would not do: it may have learned from subjects that are held out here.
    """
    name, params = present.tags.get("family"), json.loads(present.tags.get("params", "{}"))
    if name not in FAMILIES:
        return (
            None  # a family of another release cannot be judged, so it does not stand in the way
        )
    if name in board.families and board.params(name) == params:
        return subject_errors(validation.table, board.logs(validation.table, name, "volume"))
    return subject_errors(validation.table, validation.out_of_fold(name, params, "volume"))


def _final_run(session: runs.Session, name: str, table_sha256: str) -> str:
    tags = {"family": name, "table_sha256": table_sha256}
    found = runs.find("final", **tags)
    if found:
        return found
    # Training was tracked elsewhere or its record is gone, but a model needs a run to be in.
    with runs.run(session, "final", f"{name} final", tags=tags) as run_id:
        return run_id


def _promises(folder: Path, level: float) -> bool:
    tier = Forecaster.load(folder).tiers["volume"]
    return all(
        scores.promises(level)
        for calibrator in tier.calibrators.values()
        for scores in calibrator.by_app.values()
    )


def _folder_sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
