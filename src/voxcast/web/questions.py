"""Questions about one image: its request row as JSON, a path on the server, or an upload."""

from __future__ import annotations

import asyncio
import json
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pydantic_core
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.exceptions import HTTPException

from voxcast.web.images.uploads import LimitedBody, received_form
from voxcast.web.json_answers import MEDIA_TYPE
from voxcast.web.json_bodies import (
    MULTIPART,
    QUESTION_GROUPS,
    QUESTION_VALUES,
    kind_of,
)
from voxcast.web.row_schema import row_schema
from voxcast.web.served_model import served_model

if TYPE_CHECKING:
    from typing import BinaryIO

    from fastapi import Request

    from voxcast.web.images.image_paths import AllowedFolders
    from voxcast.web.images.reader_pool import ReaderPool
    from voxcast.web.json_bodies import BulkBodies
    from voxcast.web.settings import Settings


class ImageQuestion(BaseModel):
    """What every question about an image has; exactly one of ``row``, ``path`` or a file."""

    model_config = ConfigDict(extra="forbid")

    row: Annotated[dict[str, float | str | None], WithJsonSchema(row_schema())] | None = Field(
        None, description="header and characteristics, as `POST /characteristics` returns them"
    )
    path: str | None = Field(None, description="an image below a folder that the server allows")
    app: str | None = Field(None, description="application; may be left out if there is only one")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="parameters of the application, over its defaults"
    )
    host: str | None = Field(None, description="machine: its id, a host class or a node type")

    def request_row(self) -> dict[str, Any]:
        """Return the row of the model's signature, without an allocation."""
        stated = {"app": self.app, "host": self.host}
        row = {k: v for k, v in {**(self.row or {}), **stated}.items() if v is not None}
        if self.parameters:
            row["parameters_json"] = json.dumps(self.parameters)
        return row


Question = TypeVar("Question", bound=ImageQuestion)
# The answer of a reader about an image, see `voxcast.web.images.image_reader`.
Answer = dict[str, Any]


async def question(request: Request, kind: type[Question]) -> Question:
    """Read a question, and the image that it names; ``row`` is then filled.

    Raises
    ------
    RequestValidationError
        If a field is wrong.
    VoxcastError
        If the image cannot be used.
    HTTPException
        If the body cannot be received, the path does not exist, or no image can be read now.
    """
    query, answer = await question_and_image(request, kind)
    if answer is not None:
        query.row = answer["row"]
    return query


async def question_and_image(
    request: Request, kind: type[Question], *, everything: bool = False
) -> tuple[Question, Answer | None]:
    """Read a question, and the image that it names; None in place of an image for a row.

    Parameters
    ----------
    everything : bool
        Compute views and all characteristics, also ones that the model does not need.

    Raises
    ------
    RequestValidationError, VoxcastError, HTTPException
        See `question`.
    """
    pool = readers_of(request)
    if kind_of(request, MEDIA_TYPE, MULTIPART) == MULTIPART:
        body = LimitedBody(request, settings_of(request).max_upload_bytes)
        try:
            with pool.place():
                async with received_form(body) as form:
                    query = _from_form(form.fields, kind)
                    if query.row is not None or query.path is not None:
                        raise _refusal("file", "a question has one of row, path and file")
                    return query, await _read(request, query, form.file, everything=everything)
        except HTTPException:
            await body.drain()  # now that its place is free for another image
            raise
    bulk: BulkBodies = request.app.state.bulk
    try:
        async with bulk.content(
            request, kind.model_validate_json, QUESTION_VALUES, QUESTION_GROUPS
        ) as query:
            pass  # its body is no longer needed
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
    if (query.row is None) == (query.path is None):
        raise _refusal("row", "a question has one of row, path and file")
    if query.path is None:
        return query, None
    roots: AllowedFolders = request.app.state.roots
    with pool.place(), await asyncio.to_thread(roots.open, query.path) as file:
        return query, await _read(request, query, file, everything=everything)


async def _read(
    request: Request, query: ImageQuestion, file: BinaryIO, *, everything: bool
) -> Answer:
    """Have an image read as `voxcast predict` reads it for the same application."""
    served = served_model(request)
    pool = readers_of(request)
    facts = served.bundle.app_named(query.app)
    # In a thread: the forecaster may have to be read first.
    network_points = await asyncio.to_thread(served.predictions.network_points, facts)
    task = {
        "max_voxels": pool.limits.voxels,
        "coarse_points": facts.coarse_points,
        "network_points": network_points,
        # Where the header decides, no voxel is read.
        "voxels": everything or network_points > 0 or facts.characteristics != (),
        "slices": everything,
    }
    return await pool.read(file, task)


def _from_form(fields: dict[str, str], kind: type[Question]) -> Question:
    """Return the question of a form: texts as they are, all else as JSON."""
    values: dict[str, Any] = {}
    for name, text in fields.items():
        field = kind.model_fields.get(name)
        try:
            values[name] = text if field is None or _is_text(field.annotation) else (
                pydantic_core.from_json(text, allow_inf_nan=False)
            )  # fmt: skip
        except ValueError:
            raise _refusal(name, "is not JSON") from None
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _is_text(annotation: Any) -> bool:
    """Whether a field may be a text: its type, one of a union, or an annotated one of these."""
    if typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType):
        return any(_is_text(part) for part in typing.get_args(annotation))
    return annotation is str


def _refusal(field: str, problem: str) -> RequestValidationError:
    return RequestValidationError(
        [{"loc": ("body", field), "msg": problem, "type": "value_error"}]
    )


def settings_of(request: Request) -> Settings:
    """Return the settings of the service."""
    settings: Settings = request.app.state.settings
    return settings


def readers_of(request: Request) -> ReaderPool:
    """Return what reads the images of the service."""
    pool: ReaderPool = request.app.state.readers
    return pool
