"""The version of a model that MLflow noted in its folder.

A model that MLflow loads by its name in a registry, ``models:/NAME/VERSION`` or
``models:/NAME@ALIAS``, gets a file beside ``MLmodel`` that says which version this is
(``mlflow.store.artifact.models_artifact_repo`` of MLflow 3.17). A model that is read from its
folder need not have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE = "registered_model_meta"
_KEY = "model_version"
_MAX_BYTES = 10_000


def noted_version(folder: Path) -> str:
    """Return the number of the version, or an empty text where it is not noted.

    Parameters
    ----------
    folder : Path
        Folder of the model.
    """
    try:
        with (folder / FILE).open("rb") as stream:
            text = stream.read(_MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return ""
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:  # only a note: the model can be used without
        return ""
    version = content.get(_KEY) if isinstance(content, dict) else None
    return str(version) if isinstance(version, str | int) else ""
