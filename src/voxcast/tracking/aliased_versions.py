"""The version of the registered model that an alias points at, such as ``challenger``."""

from __future__ import annotations

from voxcast.errors import ModelError, one_line
from voxcast.serving import registry_database
from voxcast.serving.champion_folder import MODEL_NAME, NO_CHAMPION_CODES, check_registry
from voxcast.tracking.registered_versions import Version, versions

CHALLENGER = "challenger"


def version_with_alias(uri: str, alias: str) -> Version | None:
    """Return the version with an alias, or None if it points at none.

    Parameters
    ----------
    uri : str
        Tracking address.

    Raises
    ------
    ModelError
        If the registry cannot be read.
    """
    number = _number(uri, alias)
    return next((version for version in versions(uri) if version.number == number), None)


def _number(uri: str, alias: str) -> str | None:
    database = registry_database.database_of(uri)
    if database is not None:
        stored = registry_database.version_with_alias(database, MODEL_NAME, alias)
        return None if stored is None else stored.number
    check_registry(uri)
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        client = mlflow.MlflowClient(uri, uri)
        return str(client.get_model_version_by_alias(MODEL_NAME, alias).version)
    except MlflowException as error:
        if error.error_code in NO_CHAMPION_CODES:
            return None
        raise ModelError(f"cannot be read: {one_line(error)}", uri) from error
    except (OSError, ImportError) as error:
        raise ModelError(f"cannot be read: {one_line(error)}", uri) from error
