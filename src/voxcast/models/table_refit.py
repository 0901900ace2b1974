"""The selected model of a sample of a table, fitted once more on all rows, if there is time.

One fit of many rows costs far less than the search for the recipe, and its errors are smaller.
Bounds stay the sample's, which are wider.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.models.families.family import family
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection import recipes
from voxcast.models.selection.time_limit import TimeUpError, time_limit
from voxcast.models.table_validation import sampled

if TYPE_CHECKING:
    from voxcast.models.families.family import Params
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.table_model import TableModel

logger = logging.getLogger(__name__)


def refitted(
    model: TableModel, all_rows: Validation, params: Params, *, left_s: float
) -> TableModel:
    """Return the model fitted on all rows; if that takes longer, the model as it is.

    Parameters
    ----------
    all_rows : Validation
        All rows; the model has learned a sample of them. Of a family that is not fitted to large
        tables, as many as it takes.
    params : dict
        Parameters of the model, see `voxcast.models.selection.recipes`.
    left_s : float
        Time for the fit.
    """
    calibrated = model.forecaster.model_at("header")
    name = calibrated.model.family
    members = params["members"] if recipes.is_blend(params) else {name: params}
    limits = [limit for member in members if (limit := family(member).max_rows) is not None]
    rows = sampled(all_rows, min([len(all_rows.table), *limits]))
    try:
        with time_limit(left_s):
            point = recipes.fit(rows, name, params, "header")
    except TimeUpError:
        logger.info("the model is of the sample: a fit of all rows takes more than %.3g s", left_s)
        return model
    logger.info("the last fit is of %d rows", len(rows.table))
    return replace(model, forecaster=Forecaster({"header": replace(calibrated, model=point)}))
