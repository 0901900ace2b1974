"""Questions about one image: its request row as JSON, a path on the server, or an upload."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from fastapi import Request

    from voxcast.web.settings import Settings


class ImageQuestion(BaseModel):
    """What every question about an image has; exactly one of ``row``, ``path`` or a file."""

    model_config = ConfigDict(extra="forbid")

    row: dict[str, float | str | None] | None = Field(
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
        row = {**(self.row or {}), **{k: v for k, v in stated.items() if v is not None}}
        if self.parameters:
            row["parameters_json"] = json.dumps(self.parameters)
        return row


Question = TypeVar("Question", bound=ImageQuestion)


async def question(request: Request, kind: type[Question]) -> Question:
    """Read a question, and the image that it names; ``row`` is then filled.

    Raises
    ------
    RequestValidationError
        If a field is wrong.
    VoxcastError
        If the image cannot be used.
    """
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def settings_of(request: Request) -> Settings:
    """Return what the service was started with."""
    settings: Settings = request.app.state.settings
    return settings
