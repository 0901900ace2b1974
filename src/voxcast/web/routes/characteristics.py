"""``POST /characteristics``: facts from an image's header and voxels, and three views of it."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from voxcast.features.rows import CONTENT, content_names
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.families.number_ranges import REACH
from voxcast.models.query import Query
from voxcast.web.images.reader_pool import ReaderPool
from voxcast.web.question_schema import QUESTION_PROBLEMS, body_of
from voxcast.web.questions import ImageQuestion, question_and_image
from voxcast.web.served_model import served_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from voxcast.models.forecaster import Forecaster


@asynccontextmanager
async def readers(app: FastAPI) -> AsyncIterator[None]:
    """Start what reads images with the service, and end it with the service."""
    app.state.readers = ReaderPool(app.state.settings.images)
    try:
        yield
    finally:
        app.state.readers.close()


router = APIRouter(lifespan=readers)


class CharacteristicsQuestion(ImageQuestion):
    """An image to describe; the application decides the grids and the ranges."""

    row: None = None


class CharacteristicValue(BaseModel):
    """A characteristic of an image, beside its range in training."""

    name: str
    value: float
    unit: str
    text: str = Field(description="what it is, in a few words")
    low: float | None = Field(description="smallest in training; null where that is not recorded")
    high: float | None = Field(description="largest in training; null where it is not recorded")
    usual: float | None = Field(description="median in training; null where it is not recorded")
    within: bool | None = Field(description="whether the model takes it as in range")


class View(BaseModel):
    """A slice through the centre, right and superior (or anterior) as in RAS."""

    plane: str = Field(description="sagittal, coronal or axial")
    width: int
    height: int
    spacing_mm: tuple[float, float] = Field(description="width and height of a pixel")
    png: str = Field(description="the picture, PNG in base64")


class ImageFacts(BaseModel):
    """The grid and the storage of an image."""

    model_config = ConfigDict(extra="forbid")

    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    orientation: str
    dtype: str
    bytes: int = Field(description="size of the file")


class CharacteristicsAnswer(BaseModel):
    """Facts of an image; other questions take its ``row``."""

    model_version: str
    row: dict[str, float | str]
    characteristics: list[CharacteristicValue]
    slices: list[View]
    image: ImageFacts
    notes: list[str]


@router.post(
    "/characteristics", openapi_extra=body_of(CharacteristicsQuestion),
    responses=QUESTION_PROBLEMS,
)  # fmt: skip
async def characteristics(request: Request) -> CharacteristicsAnswer:
    """Read an image: header, characteristics with their ranges in training, three views."""
    query, answer = await question_and_image(request, CharacteristicsQuestion, everything=True)
    served = served_model(request)
    values = {name: v for name, v in (answer or {})["row"].items() if name in CHARACTERISTICS}
    app = served.bundle.app_named(query.app).name
    forecaster = await asyncio.to_thread(served.bundle.forecaster, app)
    return CharacteristicsAnswer(
        model_version=served.version,
        characteristics=beside_training(forecaster, app, values),
        **(answer or {}),
    )


def beside_training(
    forecaster: Forecaster, app: str, values: dict[str, float]
) -> list[CharacteristicValue]:
    """Return characteristics with their ranges in a model's training data.

    A model records the range of those columns that decide whether a question is out of range, and
    the median of all that it uses.
    """
    model = forecaster.model_at("volume").model
    query = Query({"app": app})
    ranges, medians = model.ranges(query), model.medians(query)
    rows = []
    for name, value in values.items():
        low, high = _range(name, ranges)
        within = None
        if low is not None and high is not None:
            reach = REACH if name.endswith("_voxels") else 1.0
            within = low / reach <= value <= high * reach
        entry = CHARACTERISTICS[name]
        usual = next(
            (_in_unit(column, medians[column]) for column in content_names(name)
             if column in medians), None,
        )  # fmt: skip
        rows.append(
            CharacteristicValue(
                name=name, value=value, unit=entry.unit, text=entry.meaning,
                low=low, high=high, usual=usual, within=within,
            )
        )  # fmt: skip
    return rows


def _range(
    name: str, ranges: dict[str, tuple[float, float]]
) -> tuple[float, float] | tuple[None, None]:
    for column in content_names(name):
        if column in ranges:
            low, high = (_in_unit(column, value) for value in ranges[column])
            return low, high
    return None, None


def _in_unit(column: str, value: float) -> float:
    """Return the value of a characteristic from the value of its feature."""
    if column.startswith(f"{CONTENT}log_"):
        return math.expm1(value)
    return value * 1e6 if column.endswith("_megavoxels") else value
