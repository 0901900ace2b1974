"""An answer by one version of the model, although the champion may change meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request

    from voxcast.web.served_model import ServedModel

Answer = TypeVar("Answer")

RETRY_AFTER_S = 2


def current_model(request: Request) -> ServedModel:
    """Return the model that answers now.

    Raises
    ------
    HTTPException
        503, while none is loaded.
    """
    served: ServedModel | None = getattr(request.app.state, "model", None)
    if served is None:
        raise HTTPException(503, "no model is loaded", {"Retry-After": str(RETRY_AFTER_S)})
    return served


async def by_one_model(
    request: Request, answer: Callable[[ServedModel], Awaitable[Answer]]
) -> Answer:
    """Return an answer for which the model is asked several times, always the same version.

    Where the champion changed meanwhile, the answer is computed again by the new one.
    """
    while True:
        served = current_model(request)
        result = await answer(served)
        if current_model(request) is served:
            return result
