"""``POST /images`` and ``GET /images``: an image is read, described and predicted.

The body of a ``POST`` is the file itself. It is received into a file without a name, which goes
when it is closed or its process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import math
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from fastapi import APIRouter, FastAPI, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from voxcast.errors import is_disk_full
from voxcast.features.rows import CONTENT, content_names
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.out_of_range import REACH
from voxcast.serving.champion import in_allocations
from voxcast.web.guards import ServiceRoute, json_answer, served_model, settings_of
from voxcast.web.questions import predict_rows
from voxcast.web.reader_pool import ReaderPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.models.forecaster import Forecaster

MULTIPART = "multipart/form-data"
_BODY = {"type": "string", "format": "binary", "description": "a NIfTI image, .nii or .nii.gz"}
App = Annotated[str | None, Query(description="application; may be left out if there is only one")]


@asynccontextmanager
async def readers(app: FastAPI) -> AsyncIterator[None]:
    """Start what reads images with the service, and end it with the service."""
    app.state.readers = ReaderPool(app.state.settings.images)
    try:
        yield
    finally:
        app.state.readers.close()


router = APIRouter(route_class=ServiceRoute, lifespan=readers)


@router.post(
    "/images", summary="Read an image", response_model=dict[str, Any],
    openapi_extra={
        "requestBody": {
            "required": True, "content": {"application/octet-stream": {"schema": _BODY}},
        }
    },
)  # fmt: skip
async def upload(request: Request, app: App = None) -> Response:
    """Describe an image, and predict the application in each allocation that was measured.

    The answer has the ``row`` that other questions take, ``predictions``, ``characteristics``
    beside their ranges in training, three ``slices``, and ``notes``.
    """
    if request.headers.get("content-type", "").lower().startswith(MULTIPART):
        detail = "send the file itself; with curl: -X POST -T FILE"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
    with _pool(request).place():
        try:
            with tempfile.TemporaryFile(prefix="voxcast-image-") as file:
                async for part in request.stream():
                    file.write(part)
                file.flush()
                return await _described(request, file, app)
        except OSError as error:
            if not is_disk_full(error):
                raise
            detail = f"the disk of {tempfile.gettempdir()} is full; the image was not read"
            raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, detail) from None


@router.get("/images", summary="Read an image of the server", response_model=dict[str, Any])
async def on_path(
    request: Request,
    path: Annotated[str, Query(description="of a file below a folder of --root")],
    app: App = None,
) -> Response:
    """Answer as for an upload, for an image below a folder that the service allows."""
    with (
        _pool(request).place(),
        await asyncio.to_thread(opened, settings_of(request).roots, path) as file,
    ):
        return await _described(request, file, app)


async def _described(request: Request, file: Any, app: str | None) -> Response:
    served, pool = served_model(request), _pool(request)
    facts = served.bundle.app_named(app)
    # In a thread: the forecaster may have to be read first.
    network_points = await asyncio.to_thread(served.network_points, facts)
    forecaster = served.bundle.forecaster(facts.name)
    task = {
        "max_voxels": pool.limits.voxels,
        "coarse_points": facts.coarse_points,
        "network_points": network_points,
    }
    image = await pool.read(file, task)
    rows = in_allocations([image["row"] | {"app": facts.name}], facts.configurations)
    values = {name: v for name, v in image["row"].items() if name in CHARACTERISTICS}
    return json_answer(
        {
            "model_version": served.version,
            **image,
            "characteristics": beside_training(forecaster, facts.name, values),
            "predictions": await predict_rows(request, rows, names_rows=False),
        }
    )


def _pool(request: Request) -> ReaderPool:
    pool: ReaderPool = request.app.state.readers
    return pool


def opened(roots: Sequence[Path], name: str) -> BinaryIO:
    """Open a regular file below one of some folders.

    Links are followed within these folders, as BIDS data sets of DataLad have them. The message is
    always the same: it reveals nothing about files elsewhere.

    Parameters
    ----------
    roots : sequence of Path
        Folders, with all links resolved.
    name : str
        Path of a file, absolute or relative to one of them.

    Raises
    ------
    HTTPException
        404 if the file does not exist or may not be read.
    """
    for root in roots:
        try:
            real = os.path.realpath(root / name)
            if not Path(real).is_relative_to(root):
                continue
            # O_NONBLOCK: a pipe without a writer does not stop us; O_NOFOLLOW: the last part was
            # resolved, so a link has been put there since.
            handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (OSError, ValueError):
            continue
        # A folder may have been replaced by a link since: the open file counts.
        target = Path(os.path.realpath(f"/proc/self/fd/{handle}"))
        if stat.S_ISREG(os.fstat(handle).st_mode) and target.is_relative_to(root):
            return os.fdopen(handle, "rb")
        os.close(handle)
    detail = "path: there is no such image below the folders of this service"
    raise HTTPException(HTTPStatus.NOT_FOUND, detail)


def beside_training(
    forecaster: Forecaster, app: str, values: dict[str, float]
) -> list[dict[str, Any]]:
    """Return characteristics with their ranges in a model's training data.

    A model records the range of those columns that decide whether a question is out of range, and
    the median of all that it uses; ``low``, ``high``, ``usual`` and ``within`` are None else.
    """
    model = forecaster.model_at("volume").model
    ranges, medians = model.range.numbers, model.medians
    rows = []
    for name, value in values.items():
        columns, low, high, within = content_names(name), None, None, None
        if column := next((c for c in columns if c in ranges), None):
            low, high = (_in_unit(column, end) for end in ranges[column])
            reach = REACH if name.endswith("_voxels") else 1.0
            within = low / reach <= value <= high * reach
        usual = next((_in_unit(c, medians[c]) for c in columns if c in medians), None)
        entry = CHARACTERISTICS[name]
        rows.append(
            {
                "name": name, "value": value, "unit": entry.unit, "text": entry.meaning,
                "low": low, "high": high, "usual": usual, "within": within,
            }
        )  # fmt: skip
    return rows


def _in_unit(column: str, value: float) -> float:
    """Return the value of a characteristic from the value of its feature."""
    if column.startswith(f"{CONTENT}log_"):
        return math.expm1(value)
    return value * 1e6 if column.endswith("_megavoxels") else value
