"""The registered model judged as it is: the answers that a user would get for recorded runs.

Nothing is learned here. The rows go through the checks of a request and the bundle's forecasters,
with the content of a client's question: header and characteristics of the image, parameters,
allocation, and the small volume where the model has a network and it is on record.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.evaluation.out_of_sample import run_columns
from voxcast.evaluation.recorded_table import FULL
from voxcast.evaluation.scoring import answer_counts, coverage, errors, exceedances
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.network_volume import network_to_bytes
from voxcast.records import TARGETS
from voxcast.serving.signature import INPUT_TYPES, REQUEST_HEADER_COLUMNS, VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pandas as pd

    from voxcast.serving.prediction_service import PredictionService

QUANTILE = 0.95
OF_RUN = ("app", "device", "cpus", "gpus", "parameters_json", "host_class")


def judge(
    model: PredictionService,
    runs: pd.DataFrame,
    images: pd.DataFrame,
    small_volumes: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """Return, by application, how the answers of a model compare with recorded runs.

    Parameters
    ----------
    model : PredictionService
        The registered model.
    runs : DataFrame
        Runs of a reserved batch, see `voxcast.evaluation.recorded_table.opened_table`. Those at
        full scale on an image are judged on.
    images : DataFrame
        Header and characteristics of their images, with ``volume_id``.
    small_volumes : mapping
        By volume id. Without it a network answers from the header alone.

    Returns
    -------
    dict
        By application ``forecaster_sha256``, ``family``, ``learned_from`` (number of subjects and
        runs), ``errors`` and ``coverage`` as in `voxcast.evaluation.scoring`, ``answers`` (numbers
        of runs, of calibrated answers and of those out of range), ``host_known`` (number of
        answers for machines of known speed), ``out_of_range`` (number of answers by feature) and
        ``input_levels`` (number of answers by level). Applications that the model has not learned
        have ``not_measurable`` with the reason.

    Raises
    ------
    ModelError
        If the model learned from a subject that it would be judged on.
    """
    usable = runs[(runs["scale"] == FULL) & (runs["volume_id"] != "")]
    results: dict[str, Any] = {}
    for app, of_app in usable.groupby("app", sort=True):
        name = str(app)
        if name not in model.bundle.apps:
            results[name] = {"not_measurable": "the registered model has not learned it"}
            continue
        results[name] = _judged_app(
            model, name, of_app.reset_index(drop=True), images, small_volumes
        )
    return results


def _judged_app(
    model: PredictionService,
    app: str,
    runs: pd.DataFrame,
    images: pd.DataFrame,
    small_volumes: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    bundle = model.bundle
    learned_subjects = set(bundle.subjects(app))
    if overlap := sorted(learned_subjects & set(runs["subject"].astype(str))):
        problem = f"{app} learned from {len(overlap)} of the subjects to judge on ({overlap[0]}…)"
        fix = "take the reserved batches out of features.history and run `voxcast learn`"
        raise ModelError(problem, bundle.folder, fix)
    columns = [*CHARACTERISTICS, *sorted(bundle.lab_characteristics)]
    sent = images[[name for name in ("volume_id", *REQUEST_HEADER_COLUMNS, *columns)
                    if name in images]]  # fmt: skip
    needs_volume = bundle.forecaster(app).model_at("volume").model.needs_volume
    rows = _request_rows(runs, sent, small_volumes if needs_volume else {})
    answers = model.predict(rows, QUANTILE)
    predictions = run_columns(runs).assign(
        **{
            f"{target}_{name}": [float(answer[f"{target}_{name}"]) for answer in answers]
            for target in TARGETS
            for name in ("median", "upper")
        },
        out_of_range=[bool(answer["out_of_range"]) for answer in answers],
        calibrated=[bool(answer["calibrated"]) for answer in answers],
    )
    served = bundle.apps[app]
    return {
        "forecaster_sha256": served.forecaster_sha256,
        "family": served.promotion.family,
        "learned_from": {"subjects": len(learned_subjects), "runs": len(bundle.cell_keys(app))},
        "errors": errors(predictions),
        "coverage": {target: coverage(predictions, target) for target in TARGETS},
        "bounds": exceedances(predictions),
        "answers": answer_counts(predictions),
        "host_known": sum(bool(answer["host_known"]) for answer in answers),
        "out_of_range": dict(Counter(n for a in answers for n in a["out_of_range"].split())),
        "input_levels": dict(Counter(str(answer["input_level"]) for answer in answers)),
    }


def _request_rows(
    runs: pd.DataFrame, images: pd.DataFrame, small_volumes: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return the rows that a client would send, with numbers as doubles."""
    by_volume = images.drop_duplicates("volume_id").set_index("volume_id")
    rows = []
    for run in runs[[*OF_RUN, "volume_id", "host_id"]].to_dict("records"):
        # A client on the machine of the run need not name it; this process may be on another.
        place = {"host": run["host_id"]}
        of_run = {name: run[name] for name in OF_RUN}
        sent = {**of_run, **place, **by_volume.loc[run["volume_id"]]}
        row: dict[str, Any] = {}
        for name, value in sent.items():
            if INPUT_TYPES.get(str(name), "double") == "string":
                row[str(name)] = str(value)
            elif not math.isnan(float(value)):
                row[str(name)] = float(value)
        if run["volume_id"] in small_volumes:
            row[VOLUME] = network_to_bytes(small_volumes[run["volume_id"]])
        rows.append(row)
    return rows
