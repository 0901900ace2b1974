"""What recorded runs alone predict of the runs measured in this project.

The runs measured here are predicted by the selected recipe, fitted without them on the recorded
batches. Then each is corrected by the speed of this machine, as its other runs tell it. A
user of the recorded runs can expect this before the first run, and after a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.metrics import scores
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes

if TYPE_CHECKING:
    from voxcast.models.families.family import Params
    from voxcast.models.selection.cross_validation import Validation

CPU = "cpu_s"
BATCH = "batch"  # of a recorded run; empty for one measured in the project
MIN_SUBJECTS = 10  # on record: of fewer nothing can be said beforehand


@dataclass(frozen=True)
class RecordedRunsAlone:
    """Errors of predictions from recorded runs alone.

    Attributes
    ----------
    family : str
        Family or ensemble of the recipe.
    runs, subjects : int
        Runs measured in the project that were predicted, and their subjects.
    recorded_subjects : int
        Subjects of the recorded runs, without those measured here.
    error_percent : float
        Mean absolute percentage error of CPU time.
    ratio : float
        Median of measured over predicted CPU time: above 1, this machine is slower.
    corrected_error_percent : float or None
        The error after the predictions of each subject were multiplied by the median ratio of the
        others; None for a single subject.
    """

    family: str
    runs: int
    subjects: int
    recorded_subjects: int
    error_percent: float
    ratio: float
    corrected_error_percent: float | None


def predict_without_own_runs(
    validation: Validation, name: str, params: Params
) -> RecordedRunsAlone | None:
    """Predict the runs measured in the project from the recorded ones.

    Parameters
    ----------
    validation : Validation
        Runs of one application, with a column ``batch``.
    name, params : str, dict
        The recipe.

    Returns
    -------
    RecordedRunsAlone or None
        None if nothing was measured here, or fewer than `MIN_SUBJECTS` other subjects are on
        record.
    """
    table = validation.table
    here = (table[BATCH] == "").to_numpy()
    subjects = table["subject"].astype(str).to_numpy()
    recorded = ~here & ~np.isin(subjects, subjects[here])
    recorded_subjects = len(set(subjects[recorded]))
    if not here.any() or recorded_subjects < MIN_SUBJECTS:
        return None
    model = recipes.fit(validation.part(np.flatnonzero(recorded)), name, params, "volume")
    volumes = None if validation.volumes is None else validation.volumes[here]
    logs = model.predict(queries_of(table[here], volumes))[:, model.targets.index(CPU)]
    measured_s = table.loc[here, CPU].to_numpy(dtype=float)
    log_ratios = np.log(measured_s) - logs
    names = subjects[here]
    corrected = None
    if len(set(names)) > 1:
        speeds = np.array([np.median(log_ratios[names != subject]) for subject in names])
        corrected = scores(measured_s, np.exp(logs + speeds))["mape"]
    return RecordedRunsAlone(
        family=name,
        runs=len(names),
        subjects=len(set(names)),
        recorded_subjects=recorded_subjects,
        error_percent=scores(measured_s, np.exp(logs))["mape"],
        ratio=float(np.exp(np.median(log_ratios))),
        corrected_error_percent=corrected,
    )
