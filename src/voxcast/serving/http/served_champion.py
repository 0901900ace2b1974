"""The champion behind an address, with what ``GET /models`` tells of its applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.records import Configuration
from voxcast.serving.champion import Champion
from voxcast.serving.http.answers import MAX_NETWORK_POINTS
from voxcast.serving.http.session import UNKNOWN_PATH
from voxcast.serving.served_app import app_among

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.serving.champion import Predict
    from voxcast.serving.http.session import ServerSession

MAX_LISTED = 1000  # of each kind; a hostile server may list any number
MAX_LETTERS = 200
MAX_COUNT = 65536  # of CPUs or GPUs
COARSE_POINTS = range(16, 257)  # as `voxcast.config.schema` allows


def served_champion(session: ServerSession, predict: Predict, app: str | None) -> Champion:
    """Return a champion with the allocations and characteristics that its server tells.

    MLflow's server tells none.

    Parameters
    ----------
    session : ServerSession
    predict : callable
        See `voxcast.serving.champion.Predict`.
    app : str or None
        Application; None for the only one.

    Raises
    ------
    ModelError
        If there is no such application, several and none is named, it is damaged, or the server
        does not answer as it should.
    """
    answer = session.get("/models")
    if answer.status in UNKNOWN_PATH:
        return Champion(predict, app)
    try:
        return _champion(session.content(answer), predict, app)
    except (ValueError, LookupError, TypeError):
        raise session.problem("lists its applications in another form") from None


def _champion(answer: Mapping[str, Any], predict: Predict, app: str | None) -> Champion:
    apps, damaged = dict(answer["apps"]), dict(answer["damaged"])
    name = app_among(_texts([*apps, *damaged]), app)
    if name in damaged:
        raise ModelError("is damaged on the server", name, "tell who runs it")
    facts = apps[name]
    parameters = dict(facts["parameters"])
    return Champion(
        predict,
        name,
        [
            _configuration(c["device"], c["cpus"], c["gpus"])
            for c in _listed(facts["configurations"])
        ],
        _integer(facts["coarse_points"], COARSE_POINTS),
        host_classes=_texts(facts["host_classes"]),
        measured=tuple(
            (c.device, c.cpus, c.gpus)
            for c in (_configuration(*m) for m in _listed(facts["measured"]))
        ),
        characteristics=_texts(facts["characteristics"]),
        app_parameters=dict(zip(_texts([*parameters]), parameters.values(), strict=True)),
        network_points=_integer(facts["network_points"], range(MAX_NETWORK_POINTS + 1)),
    )


def _listed(content: Any) -> list[Any]:
    """Return a list that is not long."""
    if not isinstance(content, list) or len(content) > MAX_LISTED:
        raise ValueError(content)
    return content


def _texts(content: Any) -> tuple[str, ...]:
    return tuple(_text(entry) for entry in _listed(content))


def _configuration(device: Any, cpus: Any, gpus: Any) -> Configuration:
    counts = _integer(cpus, range(1, MAX_COUNT + 1)), _integer(gpus, range(MAX_COUNT + 1))
    return Configuration(_text(device), *counts)


def _text(value: Any) -> str:
    """Return a text if it is short and has nothing that would steer a terminal."""
    if not isinstance(value, str) or len(value) > MAX_LETTERS or not value.isprintable():
        raise ValueError(value)
    return value


def _integer(value: Any, allowed: range) -> int:
    """Return a number if it is whole and allowed."""
    if type(value) is not int or value not in allowed:
        raise ValueError(value)
    return value
