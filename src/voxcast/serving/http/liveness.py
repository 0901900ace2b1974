"""Whether an HTTP server answers at all, in a short time."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

from voxcast.errors import ModelError

TIMEOUT_S = 10
SCHEMES = ("http://", "https://")


def check(url: str, path: str, server: str, fix: str) -> None:
    """Check that a server answers within `TIMEOUT_S`, whatever the answer is.

    Parameters
    ----------
    url : str
        Address of the server.
    path : str
        What is requested; it should cost the server nothing.
    server : str
        The server, for the message.
    fix : str
        What the user can do if it does not answer.

    Raises
    ------
    ModelError
        If it does not answer, or the address is not that of an HTTP server.
    """
    if not url.startswith(SCHEMES):
        raise ModelError("not an HTTP address", url)
    try:
        with urllib.request.urlopen(url.rstrip("/") + path, timeout=TIMEOUT_S) as reply:  # noqa: S310
            reply.read(1)
    except urllib.error.HTTPError:
        return  # such as a request for a password
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        late = isinstance(reason, TimeoutError)
        problem = f"does not answer within {TIMEOUT_S} s" if late else f"is not there: {reason}"
        raise ModelError(f"{server} {problem}", url, fix) from None
