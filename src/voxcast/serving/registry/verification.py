"""Every file of a registered model against the hashes on record, for ``voxcast models verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.errors import ModelError
from voxcast.serving.bundle import Bundle
from voxcast.serving.registry.model_layout import BUNDLE
from voxcast.serving.registry.plain_files import plain_files
from voxcast.serving.registry.registered_files import differences, hashes_of, recorded_hashes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def all_problems(model: Path, tags: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with any file or application of a model, compiled code too.

    Parameters
    ----------
    model : Path
        Folder of the model, as MLflow wrote it.
    tags : mapping of str to str
        Tags of the version, with the hashes.

    Raises
    ------
    ModelError
        As `voxcast.serving.registry.registered_files.verify_files`, or if ``bundle.json`` cannot
        be read.
    """
    wrong = differences(model, recorded_hashes(tags) or hashes_of(model))
    bundle = Bundle.load(model / BUNDLE)
    for app in bundle.facts:
        problem = bundle.problem_of(app) or _problem_of_reading(bundle, app)
        if problem is not None:
            wrong[f"application {app}"] = problem
    listed = {bundle.trained_on_path(app) for app in bundle.facts}
    folders = {bundle.forecaster_folder(app) for app in bundle.facts}
    for path in plain_files(bundle.folder):
        if path in listed or path.parent == bundle.folder or folders & set(path.parents):
            continue
        wrong[str(path.relative_to(model))] = "was not registered"
    return wrong


def _problem_of_reading(bundle: Bundle, app: str) -> str | None:
    """Return why a forecaster cannot be read, whose files have hashes of their own, or None."""
    try:
        bundle.forecaster(app)
    except ModelError as error:
        return error.problem
    return None
