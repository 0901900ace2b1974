"""A client of the server that ``voxcast serve`` starts; of MLflow's for predictions of rows.

Questions change nothing on a server, so a broken or refused one is asked again. Redirections are
not followed: a token would go to another server.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import logging
import os
import random
import re
import ssl
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

import voxcast
from voxcast.errors import ConfigError, ImageError, ModelError, RequestError, one_line
from voxcast.quantities import format_seconds
from voxcast.records import Configuration
from voxcast.serving.champion import Champion
from voxcast.serving.rows import refusal_of
from voxcast.serving.served_app import app_among
from voxcast.serving.signature import QUANTILE, VOLUME, Answer

TOKEN_VARIABLE = "VOXCAST_TOKEN"  # noqa: S105  # the name of a variable, not a token
TOKEN_FILE_VARIABLE = "VOXCAST_TOKEN_FILE"  # noqa: S105
PLAIN_HTTP_VARIABLE = "VOXCAST_TOKEN_OVER_HTTP"
CONNECT_S, HEALTH_S = 5.0, 10.0
LONGEST_WAIT_S, TOLD_WAIT_S = 10.0, 1.0
# The server is busy or starting; 502 is a proxy's report of a refused connection.
BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
_REFUSED = (400, 413, 415, 422)
_PROBLEM = "application/problem+json"  # RFC 9457, as the service answers
_FIX = "is it the server of `voxcast serve`?"
_MAX_REASON = 500  # letters
_TOKEN = re.compile(r"[!-~]+")  # anything else could end the header
# What would steer a terminal, as JSON has it.
_STEERING = re.compile(r"\\u00(?:0[0-8bcef]|1.|7f|[89].)|[\x7f-\x9f]", re.IGNORECASE)
_ROW = re.compile(r"\brow (\d+)")
# MLflow repeats the request, voxels included, before the reason.
_REPEATED_REQUEST = re.compile(
    r"Failed to (?:predict|enforce schema of) data .*?\bError: ", flags=re.DOTALL
)
_RANDOM = random.SystemRandom()  # so that clients started together do not wait alike
# Of one request, about half of a server's limit: texts become longer as JSON.
PART_BYTES, PART_ROWS, PART_EXPLAINED = 2**22, 10_000, 500

Row = dict[str, Any]
Image = Path | str | Mapping[str, Any]
Content = TypeVar("Content")

logger = logging.getLogger(__name__)


class ServedFacts(BaseModel):
    """Facts of an application in ``GET /models`` that a client needs to ask about images."""

    model_config = ConfigDict(extra="ignore")

    configurations: Annotated[list[Configuration], Field(min_length=1)]
    measured: tuple[tuple[str, int, int], ...]
    coarse_points: Annotated[int, Field(ge=16, le=256)]
    network_points: Annotated[int, Field(ge=0, le=64)]
    characteristics: tuple[str, ...]
    host_classes: tuple[str, ...]
    parameters: dict[str, Any]


class ServedApps(BaseModel):
    """The applications in ``GET /models``."""

    apps: dict[str, ServedFacts]
    damaged: dict[str, str]


class Client:
    """Asks one server; threads may share it, and connections stay open between questions.

    Parameters
    ----------
    url : str
        Its address; what precedes the path of every question stays.
    token : str, optional
        Sent with every question; by default ``VOXCAST_TOKEN``, or the first line of the
        file that ``VOXCAST_TOKEN_FILE`` names.
    plain_http_token : bool
        Whether the token may leave this machine unencrypted; also by
        ``VOXCAST_TOKEN_OVER_HTTP=1``.
    timeout_s : float
        Longest wait for the next bytes of an answer; the first ones come when the work is done.
    total_s : float
        After which a question is not repeated any more.
    attempts : int
        Of one question. The wait after a failure is drawn from 0 to a limit that doubles, up to
        10 s: full jitter, see M. Brooker, "Exponential Backoff And Jitter" (2015).

    Raises
    ------
    ModelError
        If the address is invalid.
    ConfigError
        If the token cannot be used, or would go over a network unencrypted.

    Notes
    -----
    All questions raise `voxcast.errors.RequestError` where the server refuses their content,
    and `voxcast.errors.ModelError` where it cannot be reached or does not answer as it should.

    A question is about an image: the path of a NIfTI file, of which header and characteristics are
    computed here and sent, with a volume of a few thousand voxels where the model has a network;
    or a row that `row`, `upload` or `described` returned.

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
        address = _address(url)
        self.address = str(address)
        self.timeout_s, self.total_s, self.attempts = timeout_s, total_s, attempts
        is_local = _is_loopback(address.host)
        token = _token(address, token, plain_http=plain_http_token or is_local)
        self._has_token = token is not None
        headers = {"Accept": "application/json", "User-Agent": f"voxcast/{voxcast.__version__}"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
            trust_env=not is_local,  # no proxy for this machine
            # With the certificates of this system, to which a hospital adds its own.
            verify=ssl.create_default_context(),
        )

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def predict_rows(
        self, requests: Sequence[Row], quantile: float = QUANTILE, *, explain: bool = False
    ) -> list[Row]:
        """Return the predictions of rows of the model's signature; many take several requests.

        Parameters
        ----------
        requests, quantile, explain
            See `voxcast.serving.signature`, with ``volume`` as bytes or base64; and `predict`.
        """
        params = {"quantile": quantile, "explain": explain}
        predictions: list[Row] = []
        rows = [encoded(row) for row in requests]
        for part in parts(rows, PART_EXPLAINED if explain else PART_ROWS):
            content = {"dataframe_records": part, "params": params}
            try:
                answer = self._content(self._post("/invocations", content)).get("predictions")
            except RequestError as error:  # its number is that among all rows
                before = len(predictions)
                text = _ROW.sub(lambda m: f"row {before + int(m[1])}", error.problem, count=1)  # noqa: B023
                raise RequestError(text, error.where, error.then) from None
            if not isinstance(answer, list) or len(answer) != len(part):
                raise self._problem("has no prediction for each row")
            self._checked(_answers(), answer)
            predictions += answer
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
        answer = self._response("GET", "/models")
        if answer.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            return Champion(self.predict_rows, app)
        listed = self._checked(TypeAdapter(ServedApps), self._content(answer))
        name = app_among((*listed.apps, *listed.damaged), app)
        if name in listed.damaged:
            raise ModelError("is damaged on the server", name, "tell who runs it")
        facts = listed.apps[name]
        return Champion(
            self.predict_rows, name, facts.configurations, facts.coarse_points,
            host_classes=facts.host_classes, measured=facts.measured,
            characteristics=facts.characteristics, app_parameters=facts.parameters,
            network_points=facts.network_points,
        )  # fmt: skip

    def predict(self, image: Image, **question: Any) -> dict[str, Any]:
        """Return ``model_version`` and ``predictions``, one for each configuration.

        Parameters
        ----------
        image : Path, str or mapping
            See the notes of the class.
        **question
            Fields of ``POST /predict``: ``app``, ``parameters``, ``host``, ``configurations``,
            ``quantile``, ``explain``.
        """
        rows = [self._row_of(image, question)]
        return self._answer("/predict", {"rows": rows, "configurations": "all", **question})

    def recommend(self, image: Image, **question: Any) -> dict[str, Any]:
        """Return a recommendation: ``chosen``, ``why``, all ``configurations`` and a ``script``.

        Parameters
        ----------
        image : Path, str or mapping
            See the notes of the class.
        **question
            Fields of ``POST /recommend``: ``app``, ``parameters``, ``host``, ``configurations``,
            ``cluster``, ``policy``, ``partition``, ``deadline``, ``budget_usd``.
        """
        return self._answer("/recommend", {"row": self._row_of(image, question), **question})

    def requests(self, image: Image, **question: Any) -> dict[str, Any]:
        """Return ``sequences`` of requests, the cheapest first, and the ``knots`` of their law.

        Parameters
        ----------
        image : Path, str or mapping
            See the notes of the class.
        **question
            Fields of ``POST /requests``: ``app``, ``parameters``, ``host``, ``configuration``,
            ``alpha``, ``beta``, ``gamma``, ``checkpoint_s``, ``restart_s``, ``strategy``.
        """
        return self._answer("/requests", {"row": self._row_of(image, question), **question})

    def upload(self, image: Path | str, app: str | None = None) -> dict[str, Any]:
        """Let the server read an image: its ``row``, ``slices``, ``predictions``.

        The name of the file is not sent, which may tell who the subject is.

        Raises
        ------
        ImageError
            If the file cannot be read, or has become shorter.
        """
        headers = {"Content-Type": "application/octet-stream"}
        try:
            with Path(image).open("rb") as file:
                headers["Content-Length"] = str(os.fstat(file.fileno()).st_size)
                answer = self._response("POST", "/images", _stated(app=app), headers, file)
        except httpx.LocalProtocolError:
            raise ImageError("has changed while it was sent", image) from None
        except OSError as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
            raise ImageError(str(reason), image) from None
        return self._content(answer)

    def described(self, path: str, app: str | None = None) -> dict[str, Any]:
        """Return what `upload` does for a file of the server, in a folder that it allows."""
        return self._content(self._response("GET", "/images", _stated(path=path, app=app)))

    def models(self) -> dict[str, Any]:
        """Return the registered model: its applications, their training data, its versions."""
        return self._content(self._response("GET", "/models"))

    def sites(self) -> dict[str, Any]:
        """Return the clusters and policies that `recommend` knows."""
        return self._content(self._response("GET", "/sites"))

    def health(self) -> dict[str, Any]:
        """Return whether the server is ``live`` and ``ready``, and its version; asked once."""
        return self._content(self._response("GET", "/health", attempts=1, timeout_s=HEALTH_S))

    def _row_of(self, image: Image, question: Mapping[str, Any]) -> Row:
        if isinstance(image, Mapping):
            return encoded(image)
        return self.row(image, question.get("app"))

    def _answer(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        return self._content(self._post(path, _stated(**question)))

    def _post(self, path: str, content: Mapping[str, Any]) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        return self._response("POST", path, None, headers, json.dumps(content).encode())

    def _response(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Any = None,
        *,
        attempts: int | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """Return an answer that is not that the server is busy.

        Raises
        ------
        ModelError
            If the server cannot be reached, is late, or stays busy.
        """
        attempts, timeout_s = attempts or self.attempts, timeout_s or self.timeout_s
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        end_s = time.monotonic() + self.total_s
        for failures in range(1, attempts + 1):
            requested_s = 0.0
            if hasattr(content, "seek"):
                content.seek(0)
            try:
                answer = self._http.request(
                    method, self.address + path, params=params, headers=headers,
                    content=content, timeout=timeout,
                )  # fmt: skip
            except (httpx.ReadTimeout, httpx.WriteTimeout):
                limit = format_seconds(timeout_s)
                raise self._problem(f"does not answer within {limit}", "see its log") from None
            except httpx.LocalProtocolError:
                raise
            except httpx.TransportError as error:
                failure = f"is not there: {one_line(error) or type(error).__name__}"
                if "CERTIFICATE_VERIFY" in failure:
                    raise self._problem(failure, "ask who runs it for its certificate") from None
                then = "is it running? see `voxcast serve`"
            else:
                if answer.status_code not in BUSY or attempts == 1:
                    return answer
                wanted = answer.headers.get("retry-after", "")
                requested_s = float(wanted) if wanted.isdecimal() else 0.0
                failure, then = _words(answer), "ask later"
            limit_s = min(LONGEST_WAIT_S, 0.25 * 2.0 ** (failures - 1))
            wait_s = requested_s + _RANDOM.uniform(0.0, limit_s)
            if failures == attempts or time.monotonic() + wait_s > end_s:
                break
            if wait_s >= TOLD_WAIT_S:
                again = format_seconds(wait_s)
                logger.info("%s %s; asked again in %s", self.address, failure, again)
            time.sleep(wait_s)
        counted = f", asked {failures} times" if failures > 1 else ""
        raise self._problem(f"{failure}{counted}", then)

    def _content(self, answer: httpx.Response) -> dict[str, Any]:
        """Return the object of an answer.

        Raises
        ------
        RequestError
            If the question was refused.
        ModelError
            If it is another error, or no object.
        """
        status = answer.status_code
        # 404 of our service may be about an item of a question, such as a path.
        is_problem = answer.headers.get("content-type", "").startswith(_PROBLEM)
        is_item = status == 404 and is_problem and _detail(answer) not in ("", "Not Found")
        if status in _REFUSED or is_item:
            reason = _REPEATED_REQUEST.sub("", _detail(answer))
            raise RequestError(reason[:_MAX_REASON], self.address)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            problem = "refuses the token" if self._has_token else "wants a token"
            raise self._problem(problem, f"set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}")
        if status != HTTPStatus.OK:
            raise self._problem(_words(answer))
        try:
            content = json.loads(answer.content)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise self._problem("answers something else than a JSON object")
        if _STEERING.search(answer.text):
            raise self._problem("answers with unprintable characters")
        return content

    def _checked(self, kind: TypeAdapter[Content], content: Any) -> Content:
        """Return content of an answer as records; refuse another form."""
        try:
            return kind.validate_python(content)
        except ValidationError as error:
            where, reason = refusal_of(error.errors(include_url=False))
            problem = f"answers in another form: {_printable(f'{where}: {reason}')}"
            raise self._problem(problem) from None

    def _problem(self, problem: str, then: str = _FIX) -> ModelError:
        """Return the error of a server that does not answer as it should."""
        return ModelError(f"the server {problem}", self.address, then)


def encoded(row: Mapping[str, Any]) -> Row:
    """Return a row as JSON takes it: a small volume in base64."""
    volume = row.get(VOLUME)
    if isinstance(volume, bytes):
        return {**row, VOLUME: base64.b64encode(volume).decode()}
    return dict(row)


def parts(rows: Sequence[Row], most_rows: int) -> Iterator[list[Row]]:
    """Yield rows in order, as many at a time as a server receives; there is one part at least."""
    part: list[Row] = []
    volume_bytes = 0
    for row in rows:
        size = len(row.get(VOLUME) or "")
        if part and (volume_bytes + size > PART_BYTES or len(part) == most_rows):
            yield part
            part, volume_bytes = [], 0
        part.append(row)
        volume_bytes += size
    yield part


@cache
def _answers() -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[Answer])


def _stated(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _address(url: str) -> httpx.URL:
    """Return the address of a server, without a slash or ``/invocations`` at its end."""
    wrong = ModelError("not an HTTP address", url, "e.g. http://127.0.0.1:5001")
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise wrong from None
    if address.userinfo:  # before the address is in any message
        then = f"put a token into {TOKEN_VARIABLE}"
        raise ModelError("has a name or a password in it", "the address", then)
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if address.scheme not in ("http", "https") or not address.host or not is_plain:
        raise wrong
    if address.query or address.fragment:
        raise ModelError("must end with its path", url, "leave out ? and #")
    return address.copy_with(path=address.path.rstrip("/").removesuffix("/invocations"))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(address: httpx.URL, token: str | None, *, plain_http: bool) -> str | None:
    """Return the token to send, which is refused where anyone on the way could read it."""
    where = "the token"
    if token is None:
        where = TOKEN_VARIABLE
        token = os.environ.get(TOKEN_VARIABLE)
    if token is None and (where := os.environ.get(TOKEN_FILE_VARIABLE, "")):
        token = _token_of(Path(where))
    if token is None:
        return None
    if not _TOKEN.fullmatch(token):
        raise ConfigError("empty, or with characters that a token cannot have", where)
    if address.scheme == "http" and not plain_http and os.environ.get(PLAIN_HTTP_VARIABLE) != "1":
        then = f"use https, or set {PLAIN_HTTP_VARIABLE}=1 if the network between is trusted"
        raise ConfigError(f"would go to {address} unencrypted", where, then)
    return token


def _token_of(path: Path) -> str:
    """Return the first line of a file."""
    try:
        token = path.read_text(encoding="utf-8").split("\n")[0].strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        then = f"see {TOKEN_FILE_VARIABLE}"
        raise ConfigError(f"cannot be read: {reason}", path, then) from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        logger.warning("%s: others can read this token; chmod 600 keeps it to you", path)
    return token


def _words(answer: httpx.Response) -> str:
    """Return a server's answer that is not a result, in words."""
    if target := answer.headers.get("location"):
        return f"answers {answer.status_code}: it is elsewhere, at {_printable(target)}"
    detail = _detail(answer)
    return f"answers {answer.status_code}{f': {detail}' if detail else ''}"


def _detail(answer: httpx.Response) -> str:
    """Return the reason in an answer: of RFC 9457, of MLflow, or the text of a proxy."""
    try:
        content = answer.json()
        reason = content.get("detail") or content.get("message")
    except (ValueError, RecursionError, AttributeError):
        reason = answer.text[: 2**16]
    return _printable(str(reason or ""))[:2000]


def _printable(text: str) -> str:
    """Return a text of others on one line, without what would steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
