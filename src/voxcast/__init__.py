"""voxcast: runtime and memory of neuroimaging applications, predicted per image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from voxcast.api.model import Model

__version__ = "0.1.0"

# Names that are imported when they are used, so that `import voxcast` stays light.
_LAZY = {
    "Configuration": "voxcast.records",
    "Model": "voxcast.api.model",
    "OnlineSizer": "voxcast.allocation.requests.online",
    "Plan": "voxcast.api.plan",
    "RuntimeRegressor": "voxcast.models.regressor",
    "Submission": "voxcast.api.submission",
    "VoxcastError": "voxcast.errors",
    "fit": "voxcast.models.regressor",
    "history": "voxcast.api.model",
    "inspect": "voxcast.api.model",
    "kernel_s": "voxcast.measure.metronome",
    "plot": "voxcast.report.plot",
    "requests": "voxcast.api.sequences",
    "submit": "voxcast.api.model",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_LAZY[name])
    return module if _LAZY[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    project: str | os.PathLike[str] | None = None,
) -> Model:
    """Load a model.

    Parameters
    ----------
    model : str or path, optional
        Number of a version, the folder of one such as ``models/v3``, or the address of a service;
        by default the champion, and outside of a project the reference model of the package.
    project : path, optional
        Project folder; by default ``VOXCAST_PROJECT``, or the nearest folder upwards that is one.
        Its versions are used, and the speeds of machines that were measured in it.

    Returns
    -------
    voxcast.api.model.Model
        It answers in the same words wherever it is.

    Raises
    ------
    voxcast.errors.ConfigError
        If there is no project.
    voxcast.errors.ModelError
        If there is no such model, or it cannot be read.

    Examples
    --------
    >>> import voxcast
    >>> model = voxcast.load()  # doctest: +SKIP
    >>> model.predict("sub-01_T1w.nii.gz", quantile=0.9)  # doctest: +SKIP
    """
    from voxcast.api import model as models

    return models.load(model, project)
