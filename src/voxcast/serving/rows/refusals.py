"""Refusals of rows, as a model in this process and one behind a server word them."""

from __future__ import annotations

import re

from voxcast.errors import RequestError

MAX_REASON = 500  # letters
_PREFIX = "request refused: "
_ROW = re.compile(r"\brow (\d+)")
_NUMBERED = re.compile(rf"(?:{_PREFIX})?(?:row \d+: )?")
# MLflow repeats the request, voxels included, before the reason.
_REPEATED_REQUEST = re.compile(
    r"Failed to (?:predict|enforce schema of) data .*?\bError: ", flags=re.DOTALL
)


def refusal(message: str, server: str | None = None) -> RequestError:
    """Return the error of a request that a model refused, without the request.

    Parameters
    ----------
    message : str
        Of the model, or of the server that answers for it.
    server : str, optional
        Address of that server.
    """
    reason = _REPEATED_REQUEST.sub("", message)
    return RequestError(f"{_PREFIX}{reason[:MAX_REASON]}", server)


def renumbered(error: RequestError, before: int) -> RequestError:
    """Return the error of a request of more rows, ``before`` of them before these."""
    problem = _ROW.sub(lambda match: f"row {before + int(match[1])}", error.problem, count=1)
    return RequestError(problem, error.where, error.then)


def reason_for_row(error: RequestError) -> str:
    """Return why the only row of a request was refused, without its number."""
    return _NUMBERED.sub("", error.problem, count=1)
