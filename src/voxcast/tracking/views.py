"""How MLflow's page shows the experiment and the model: descriptions, and a view of final runs.

The columns of the table are a choice of the browser, but a *saved view* is a tag of the
experiment: MLflow's page lists it under its name, and opens it from a link.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlflow import MlflowClient

    from voxcast.serving.served_app import Promotion

NOTE = "mlflow.note.content"
FINALS_FILTER = "tags.kind = 'final'"
FINALS_VIEW = "finals"
DEFAULT_ADDRESS = "http://127.0.0.1:5000"  # of `mlflow ui`
_VIEW_TAG = f"mlflow.sharedViewState.{FINALS_VIEW}"
_CREATED_MS = 1_750_000_000_000  # a constant, so that the tag changes only with the view
_COLUMNS = (
    "tags.`app`",
    "tags.`family`",
    "metrics.`cv/objective`",
    *(f"metrics.`cv/{target}/mape`" for target in TARGETS),
    *(f"metrics.`test/{target}/mape`" for target in TARGETS),
    *(f"metrics.`test/{target}/coverage`" for target in TARGETS),
    "attributes.`Models`",
)
NOTES = {
    "campaign": "One pass of the search: a study for each family, with its trials.",
    "study": "The search over one family. The metrics are those of its best trial, out of fold.",
    "trial": "One set of parameters. `cv/` metrics are out of fold, with whole subjects held out.",
    "final": "A family with its best parameters, fitted to all training subjects. `cv/` metrics "
    "are out of fold, `test/` metrics are on unseen subjects; errors are in percent.",
    "trace": "Phases of a parallel run, from the trace of its communication. `phases.html` shows "
    "them.",
}
_DESCRIPTION = f"""Models of runtime and memory of neuroimaging applications.

Runs are nested: campaign, study (one for each family), trial, final. The saved view
**{FINALS_VIEW}** shows the finals, best first; its filter is `{FINALS_FILTER}`. Filter by
`tags.app` to compare the families of one application. `mape` is the mean absolute error in
percent, `coverage` the share of unseen subjects below the upper bound, `objective` the mean
absolute error of the logarithms of CPU time and memory, by which families are ranked.
"""


MODEL_NOTE = """Runtime and memory of applications on an image, as quantiles by configuration.

A version is a bundle: one forecaster for each application. A promotion replaces that of one
application, makes a new version, and carries the others over. The alias `champion` is what
`voxcast predict`, `recommend` and `serve` use.
"""


def describe_model(
    client: MlflowClient, name: str, version: str, promoted: str, served: Mapping[str, Promotion]
) -> None:
    """Give a version of a registered model its description, and the model its own if it has none.

    Parameters
    ----------
    name, version : str
        Of the registered model.
    promoted : str
        Application for which the version was made.
    served : mapping of str to Promotion
        What each application is served by.
    """
    if not client.get_registered_model(name).description:
        client.update_registered_model(name, MODEL_NOTE)
    lines = [f"Made for the promotion of `{promoted}`: {served[promoted].detail}.", ""]
    for app, promotion in served.items():
        calibrated = "calibrated" if promotion.calibrated else "not calibrated"
        lines.append(
            f"- `{app}` {promotion.app_version}: {promotion.family}, learned from "
            f"{promotion.runs} runs of {promotion.subjects} subjects "
            f"({promotion.noisy_runs} disturbed), {calibrated}, promoted {promotion.promoted_at}"
        )
    lines += ["", "`artifacts/model_card.md` has the rest: data, errors, ranges and limits."]
    client.update_model_version(name, version, "\n".join(lines))


def describe_experiment(client: MlflowClient, experiment_id: str) -> None:
    """Give an experiment its description and the view of its final runs.

    Tags that are set already are not touched, so that a user's own text stays.
    """
    tags = {
        NOTE: _DESCRIPTION,
        # Else the page opens with the tables for language models.
        "mlflow.experimentKind": "custom_model_development",
        _VIEW_TAG: _saved_view(),
    }
    present = client.get_experiment(experiment_id).tags
    for name, value in tags.items():
        if name not in present:
            client.set_experiment_tag(experiment_id, name, value)


def finals_link(experiment_id: str, address: str = DEFAULT_ADDRESS) -> str:
    """Return the address of the page with the final runs.

    Parameters
    ----------
    experiment_id : str
        Id of the experiment on the tracking server.
    address : str
        Address of the server.

    Examples
    --------
    >>> finals_link("1")
    'http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=finals'
    """
    page = f"experiments/{experiment_id}/runs?viewStateShareKey={FINALS_VIEW}"
    return f"{address.rstrip('/')}/#/{page}"


def _saved_view() -> str:
    """Return the view in MLflow's format: an envelope that holds the state as text."""
    state: dict[str, Any] = {
        "searchFilter": FINALS_FILTER,
        "orderByKey": "metrics.`cv/objective`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": list(_COLUMNS),
    }
    times = {"createdAt": _CREATED_MS, "updatedAt": _CREATED_MS}
    return json.dumps({"name": FINALS_VIEW, **times, "state": json.dumps(state)})
