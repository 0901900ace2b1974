"""A client of the server that ``voxcast serve`` starts; also of MLflow's, for predictions of rows.

Questions change nothing on the server, so a broken or refused one is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from voxcast.errors import ModelError
from voxcast.serving.http.address import ServerAddress, token_for
from voxcast.serving.http.answers import problem_of_answers
from voxcast.serving.http.connections import Timeouts
from voxcast.serving.http.request_parts import encoded, predictions_in_parts
from voxcast.serving.http.retries import Retries
from voxcast.serving.http.session import UNKNOWN_PATH, ServerSession

if TYPE_CHECKING:
    from voxcast.serving.champion import Champion

    Row = dict[str, Any]
    Image = Path | str | Mapping[str, Any]
    Sent = Literal["characteristics", "file", "path"]


class Client:
    """Asks one server; threads may share it, and connections stay open between questions.

    Parameters
    ----------
    url : str
        Address of the server.
    token : str, optional
        By default that of ``VOXCAST_TOKEN`` or ``VOXCAST_TOKEN_FILE``.
    timeouts : Timeouts, optional
        Longest waits, see `voxcast.serving.http.connections.Timeouts`.
    retries : Retries, optional
        When a question is repeated, see `voxcast.serving.http.retries.Retries`.
    plain_http_token : bool
        Send the token unencrypted over a network that is trusted.

    Raises
    ------
    ModelError
        If the address is none.
    ConfigError
        If the token cannot be used, or would go over a network unencrypted.

    Notes
    -----
    All questions raise `voxcast.errors.RequestError` where the server refuses what they contain,
    and `voxcast.errors.ModelError` where it cannot be reached or does not answer as it should.

    A question is about an image: the path of a NIfTI file, or a row that `row` or
    ``POST /characteristics`` returned. ``send`` tells what of a file leaves this machine:

    - ``"characteristics"``: header and characteristics, which are computed here; the default.
      Where the model's network wants one, also a volume of a few thousand voxels.
    - ``"file"``: all of it.
    - ``"path"``: its path, which means a file of the server, below a folder that it allows.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:5001")
    >>> str(client.address)
    'http://127.0.0.1:5001'
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        plain_http_token: bool = False,
    ) -> None:
        self.address = ServerAddress.parse(url)
        sent_token = token_for(self.address, token, plain_http=plain_http_token)
        self._session = ServerSession(
            self.address, sent_token, timeouts or Timeouts(), retries or Retries()
        )
        self._is_of_mlflow = False

    def __repr__(self) -> str:
        return f"Client({str(self.address)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next question opens one again."""
        self._session.close()

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
        if not self._is_of_mlflow:
            answer = self._session.post("/predict/batch", {"rows": rows, **options})
            self._is_of_mlflow = answer.status in UNKNOWN_PATH
        if self._is_of_mlflow:
            content = {"dataframe_records": rows, "params": options}
            answer = self._session.post("/invocations", content)
        predictions = self._session.content(answer).get("predictions")
        if not isinstance(predictions, list) or len(predictions) != len(rows):
            raise self._session.problem("has no prediction for each row")
        if wrong := problem_of_answers(predictions):
            raise self._session.problem(wrong)
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
        """Return the served model as one of its applications; None stands for the only one."""
        from voxcast.serving.http.served_champion import served_champion

        return served_champion(self._session, self.predict_rows, app)

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
            Each with ``device``, ``cpus`` and ``gpus``; by default those that were measured.
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
        """Return what to request: ``chosen``, ``why``, all ``configurations`` and a ``script``.

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
        """Return the registered model: its applications, what they learned from, its versions."""
        return self._session.content(self._session.get("/models"))

    def sites(self) -> dict[str, Any]:
        """Return the clusters and policies that `recommend` knows."""
        return self._session.content(self._session.get("/sites"))

    def health(self) -> dict[str, Any]:
        """Return whether the server is ``live`` and ``ready``, and its version; asked once."""
        answer = self._session.get_once("/health")
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            answer = replace(answer, status=HTTPStatus.OK)
        return self._session.content(answer)

    def _about(self, path: str, image: Image, send: Sent, **fields: Any) -> dict[str, Any]:
        stated = {name: value for name, value in fields.items() if value is not None}
        if isinstance(image, Mapping):
            stated["row"] = encoded(image)
        elif send == "path":
            stated["path"] = str(image)
        elif send == "file":
            from voxcast.serving.http.upload import Upload

            upload = Upload.of(Path(image), stated)
            return self._session.content(self._session.send(path, upload.headers, upload.parts))
        elif send == "characteristics":
            stated["row"] = self.row(image, stated.get("app"))
        else:
            raise ModelError(f"unknown: {send}", "send", "choose characteristics, file or path")
        return self._session.content(self._session.post(path, stated))
