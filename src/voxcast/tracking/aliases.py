"""The aliases of the registered model: which version is champion, and which is challenger.

A service looks them up every few seconds, so this is one read of a database or one request.
"""

from __future__ import annotations

from voxcast.errors import ModelError, one_line
from voxcast.serving.registry import database as registry_database
from voxcast.serving.registry.lookup import MODEL_NAME, NO_CHAMPION_CODES, check_registry
from voxcast.serving.registry.sql_server import without_password


def aliases(uri: str) -> dict[str, str]:
    """Return the number of the version of each alias; empty if there is no such model.

    Parameters
    ----------
    uri : str
        Tracking address.

    Raises
    ------
    ModelError
        If the registry cannot be read now.
    """
    database = registry_database.database_of(uri)
    if database is not None:
        stored = registry_database.versions(database, MODEL_NAME)
        return {alias: version.number for version in stored for alias in version.aliases}
    check_registry(uri)
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        model = mlflow.MlflowClient(uri, uri).get_registered_model(MODEL_NAME)
    except MlflowException as error:
        if error.error_code in NO_CHAMPION_CODES:
            return {}
        raise ModelError(f"cannot be read: {one_line(error)}", without_password(uri)) from error
    except (OSError, ImportError) as error:
        raise ModelError(f"cannot be read: {one_line(error)}", without_password(uri)) from error
    return {alias: str(number) for alias, number in model.aliases.items()}
