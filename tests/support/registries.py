"""An empty registry, copied: MLflow takes a second of time to make its tables."""

import functools
import tempfile
from pathlib import Path

from voxcast.tracking import runs
from voxcast.tracking.address import DATABASE, address_of, tracking_uri
from voxcast.tracking.runs import Session


@functools.cache
def _empty_database() -> bytes:
    from mlflow.store.db.utils import _initialize_tables, create_sqlalchemy_engine

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DATABASE
        engine = create_sqlalchemy_engine(address_of(path))
        _initialize_tables(engine)
        engine.dispose()
        return path.read_bytes()


def logged_model(project: Path) -> Path:
    """Return MLflow's own folder of the only version of a project."""
    (model,) = (project / "mlruns").rglob("MLmodel")
    return model.parent


def connected(project: Path) -> Session:
    """Connect to the registry of a project; one that is missing is copied."""
    path = project.resolve() / DATABASE
    if tracking_uri(project) == address_of(path) and not path.exists():
        path.write_bytes(_empty_database())
    return runs.connect(project)
