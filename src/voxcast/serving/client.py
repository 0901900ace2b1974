"""A client of the server that ``voxcast serve`` starts; of MLflow's for predictions of rows."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from voxcast.errors import ModelError, RequestError
from voxcast.records import Configuration
from voxcast.serving.champion import Champion
from voxcast.serving.rows.refusals import renumbered
from voxcast.serving.served_app import app_among
from voxcast.serving.server import UNKNOWN_PATH, Server
from voxcast.serving.signature import OUTPUT_TYPES, VOLUME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Row = dict[str, Any]
    Image = Path | str | Mapping[str, Any]
    Sent = Literal["characteristics", "file", "path"]

MAX_NETWORK_POINTS = 64  # the volume of more has millions of cells
COARSE_POINTS = range(16, 257)  # as `voxcast.config.schema` allows
# Half of a server's limit: texts become longer as JSON.
PART_BYTES, PART_ROWS, PART_EXPLAINED = 2**23, 10_000, 500
_VALUE_BYTES = 24
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "double": (int, float), "long": (int,), "boolean": (bool,),
}  # fmt: skip


class Client:
    """Asks one server; threads may share it, and connections stay open between questions.

    Parameters
    ----------
    url, token, plain_http_token, timeout_s, total_s, attempts
        See `voxcast.serving.server.Server`, also for errors.

    Notes
    -----
    All questions raise `voxcast.errors.RequestError` where the server refuses their content,
    and `voxcast.errors.ModelError` where it cannot be reached or does not answer as it should.

    A question is about an image: the path of a NIfTI file, or a row that `row` or
    ``POST /characteristics`` returned. ``send`` selects the parts of a file that are sent:

    - ``"characteristics"``: header and characteristics, which are computed here; the default.
      Where the model's network wants one, also a volume of a few thousand voxels.
    - ``"file"``: all of it.
    - ``"path"``: its path, which means a file of the server, below a folder that it allows.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:5001")
    >>> client.address
    'http://127.0.0.1:5001'
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        plain_http_token: bool = False,
        timeout_s: float = 60.0,
        total_s: float = 180.0,
        attempts: int = 5,
    ) -> None:
        self._server = Server(
            url, token, plain_http_token=plain_http_token, timeout_s=timeout_s, total_s=total_s,
            attempts=attempts,
        )  # fmt: skip
        self.address = self._server.address

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def predict_rows(
        self, rows: Sequence[Row], quantile: float = 0.95, *, explain: bool = False
    ) -> list[Row]:
        """Return the predictions of rows of the model's signature; many take several requests.

        Parameters
        ----------
        rows, quantile, explain
            See `voxcast.serving.signature`, with ``volume`` as bytes or base64; and `predict`.
        """
        options = {"quantile": quantile, "explain": explain}
        return predictions_in_parts(
            [encoded(row) for row in rows], lambda part: self._part(part, options), explain=explain
        )

    def _part(self, rows: list[Row], options: Mapping[str, Any]) -> list[Row]:
        content = {"dataframe_records": rows, "params": options}
        answer = self._server.post("/invocations", content)
        predictions = self._server.content(answer).get("predictions")
        if not isinstance(predictions, list) or len(predictions) != len(rows):
            raise self._server.problem("has no prediction for each row")
        if wrong := problem_of_answers(predictions):
            raise self._server.problem(wrong)
        return predictions

    def row(self, image: Path | str, app: str | None = None) -> Row:
        """Return header and characteristics of an image, computed here, as a row of a question.

        Raises
        ------
        ImageError
            If the image cannot be used.
        """
        row = self.champion(app).request_rows(Path(image))[0]
        return encoded({k: v for k, v in row.items() if k not in ("device", "cpus", "gpus")})

    def champion(self, app: str | None = None) -> Champion:
        """Return the served model as one of its applications; None stands for the only one.

        MLflow's server does not tell its allocations and characteristics.
        """
        answer = self._server.get("/models")
        if answer.status in UNKNOWN_PATH:
            return Champion(self.predict_rows, app)
        content = self._server.content(answer)
        try:
            return self._champion(content, app)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._server.problem("lists its applications in another form") from None

    def _champion(self, answer: Mapping[str, Any], app: str | None) -> Champion:
        apps, damaged = dict(answer["apps"]), dict(answer["damaged"])
        name = app_among((*apps, *damaged), app)
        if name in damaged:
            raise ModelError("is damaged on the server", name, "tell who runs it")
        facts = apps[name]
        coarse_points, network_points = facts["coarse_points"], facts["network_points"]
        if coarse_points not in COARSE_POINTS or not 0 <= network_points <= MAX_NETWORK_POINTS:
            raise ValueError(facts)
        return Champion(
            self.predict_rows,
            name,
            [
                Configuration(str(c["device"]), int(c["cpus"]), int(c["gpus"]))
                for c in facts["configurations"]
            ],
            coarse_points,
            host_classes=tuple(map(str, facts["host_classes"])),
            measured=tuple(
                (str(device), int(cpus), int(gpus)) for device, cpus, gpus in facts["measured"]
            ),
            characteristics=tuple(map(str, facts["characteristics"])),
            app_parameters=dict(facts["parameters"]),
            network_points=network_points,
        )

    def predict(
        self,
        image: Image,
        *,
        app: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        host: str | None = None,
        configurations: Sequence[Mapping[str, Any]] | None = None,
        quantile: float | None = None,
        explain: bool | None = None,
        send: Sent = "characteristics",
    ) -> dict[str, Any]:
        """Return ``model_version`` and ``predictions``, one for each configuration.

        Parameters
        ----------
        image : Path, str or mapping
            See the notes of the class, as for ``send``.
        app : str, optional
            Needed if the model has several.
        parameters : mapping, optional
            Of the application, over its defaults.
        host : str, optional
            Machine to predict for: its id, a host class or a node type.
        configurations : sequence of mapping, optional
            Each with ``device``, ``cpus`` and ``gpus``; by default all that were measured.
        quantile : float, optional
            Probability of the upper bounds; by default 0.95.
        explain : bool, optional
            Add what changed the runtime most.
        """
        return self._about(
            "/predict", image, send, app=app, parameters=parameters, host=host,
            configurations=configurations, quantile=quantile, explain=explain,
        )  # fmt: skip

    def recommend(
        self,
        image: Image,
        *,
        app: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        host: str | None = None,
        cluster: str | None = None,
        policy: str | None = None,
        deadline: str | None = None,
        budget_usd: float | None = None,
        partition: str | None = None,
        configurations: Sequence[Mapping[str, Any]] | None = None,
        send: Sent = "characteristics",
    ) -> dict[str, Any]:
        """Return a recommendation: ``chosen``, ``why``, all ``configurations`` and a ``script``.

        Parameters
        ----------
        cluster, policy, partition : str, optional
            Of the server's site; by default its own.
        deadline : str, optional
            Hard limit: a duration such as ``2h``, or a time in ISO 8601.
        budget_usd : float, optional
            Hard limit of the cost of the image.
        image, app, parameters, host, configurations, send
            As in `predict`.
        """
        return self._about(
            "/recommend", image, send, app=app, parameters=parameters, host=host, cluster=cluster,
            policy=policy, deadline=deadline, budget_usd=budget_usd, partition=partition,
            configurations=configurations,
        )  # fmt: skip

    def requests(
        self,
        image: Image,
        *,
        app: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        host: str | None = None,
        configuration: Mapping[str, Any] | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        gamma: float | None = None,
        checkpoint_s: float | None = None,
        restart_s: float | None = None,
        strategy: str | None = None,
        send: Sent = "characteristics",
    ) -> dict[str, Any]:
        """Return ``sequences`` of requests, the cheapest first, and the ``knots`` of their law.

        Parameters
        ----------
        configuration : mapping, optional
            With ``device``, ``cpus`` and ``gpus``.
        alpha, beta, gamma : float, optional
            Price of requested time, of used time and of each request.
        checkpoint_s, restart_s : float, optional
            Duration of writing a checkpoint and of a restart; both or none.
        strategy : str, optional
            One strategy; by default all.
        image, app, parameters, host, send
            As in `predict`.
        """
        return self._about(
            "/requests", image, send, app=app, parameters=parameters, host=host,
            configuration=configuration, alpha=alpha, beta=beta, gamma=gamma,
            checkpoint_s=checkpoint_s, restart_s=restart_s, strategy=strategy,
        )  # fmt: skip

    def characteristics(
        self, image: Path | str, *, app: str | None = None, send: Sent = "file"
    ) -> dict[str, Any]:
        """Let the server describe an image: ``row``, which `row` computes here, and ``slices``."""
        if send == "characteristics":
            raise ModelError("needs the file or its path", "send", "`Client.row` computes a row")
        return self._about("/characteristics", image, send, app=app)

    def models(self) -> dict[str, Any]:
        """Return the registered model: its applications, their training data, its versions."""
        return self._server.content(self._server.get("/models"))

    def sites(self) -> dict[str, Any]:
        """Return the clusters and policies that `recommend` knows."""
        return self._server.content(self._server.get("/sites"))

    def health(self) -> dict[str, Any]:
        """Return whether the server is ``live`` and ``ready``, and its version; asked once."""
        answer = self._server.get_once("/health")
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            answer = replace(answer, status=HTTPStatus.OK)
        return self._server.content(answer)

    def _about(self, path: str, image: Image, send: Sent, **fields: Any) -> dict[str, Any]:
        stated = {name: value for name, value in fields.items() if value is not None}
        if isinstance(image, Mapping):
            stated["row"] = encoded(image)
        elif send == "path":
            stated["path"] = str(image)
        elif send == "file":
            answer = self._server.post_file(path, Path(image), stated)
            return self._server.content(answer)
        elif send == "characteristics":
            stated["row"] = self.row(image, stated.get("app"))
        else:
            raise ModelError(f"unknown: {send}", "send", "choose characteristics, file or path")
        return self._server.content(self._server.post(path, stated))


def encoded(row: Mapping[str, Any]) -> Row:
    """Return a row as JSON takes it: a small volume in base64."""
    volume = row.get(VOLUME)
    if isinstance(volume, bytes):
        return {**row, VOLUME: base64.b64encode(volume).decode()}
    return dict(row)


def predictions_in_parts(
    rows: Sequence[Row], predict: Callable[[list[Row]], list[Row]], *, explain: bool
) -> list[Row]:
    """Return the predictions of all rows, requested in parts.

    Parameters
    ----------
    rows : sequence of dict
        As JSON has them.
    predict : callable
        Requests the rows of a part.
    explain : bool
        Whether each row is explained, which servers do for fewer rows at a time.

    Raises
    ------
    RequestError
        If a row is refused; its number is that among all rows.
    """
    predictions: list[Row] = []
    for part in _parts(rows, PART_EXPLAINED if explain else PART_ROWS):
        try:
            predictions += predict(part)
        except RequestError as error:
            raise renumbered(error, len(predictions)) from None
    return predictions


def _parts(rows: Sequence[Row], most_rows: int) -> Iterator[list[Row]]:
    """Yield rows in order; there is one part at least, and a row in each."""
    part: list[Row] = []
    part_bytes = 0
    for row in rows:
        size = sum(
            len(name) + (len(value) if isinstance(value, str) else _VALUE_BYTES)
            for name, value in row.items()
        )
        if part and (part_bytes + size > PART_BYTES or len(part) == most_rows):
            yield part
            part, part_bytes = [], 0
        part.append(row)
        part_bytes += size
    yield part


def problem_of_answers(answers: Sequence[Any]) -> str | None:
    """Return the problem of the rows that a server answers, or None."""
    for number, answer in enumerate(answers):
        if not isinstance(answer, dict):
            return f"answers row {number} with something else than an object"
        for name, kind in OUTPUT_TYPES.items():
            if name not in answer:
                return f"answers row {number} without {name}"
            value = answer[name]
            is_kind = isinstance(value, _KINDS[kind])
            is_flag = isinstance(value, bool) and kind != "boolean"
            # Infinite values and NaN are null in JSON.
            if (not is_kind or is_flag) and not (value is None and kind == "double"):
                return f"answers row {number} with another kind of {name} than {kind}"
        points = answer["network_points"]
        if points is None or not 0 <= points <= MAX_NETWORK_POINTS:
            return f"answers row {number} with {points} network_points, not 0 to 64"
    return None
