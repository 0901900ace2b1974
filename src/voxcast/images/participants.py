"""The subjects of a generated image set: the table ``participants.tsv``."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ImageError
from voxcast.files import sha256_of
from voxcast.images.recipe import Recipe

if TYPE_CHECKING:
    import os

PARTICIPANTS = "participants.tsv"


def read_participants(folder: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the rows of a generated set, as text; `volume_id` and `subject` are added.

    The identifier is a hash of recipe and generator, because resampling is not bit-identical on
    other processors.

    Raises
    ------
    ImageError
        If the folder holds no generated set.
    """
    path = Path(folder) / PARTICIPANTS
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
        return [
            {
                "volume_id": sha256_of([row["recipe_sha256"], row["generator_version"]])[:16],
                "subject": row["participant_id"].removeprefix("sub-"),
                **row,
            }
            for row in rows
        ]
    except FileNotFoundError:
        raise ImageError(
            "no such file", path, "generate the volumes with the stage images"
        ) from None
    except KeyError as error:
        raise ImageError(f"has no column {error}, so these were not generated", path) from None


def generated_ids(
    folder: str | os.PathLike[str], root: str | os.PathLike[str] = "."
) -> dict[str, str]:
    """Return the volume identifiers of a generated set by path, relative to `root`."""
    ids = {}
    for row in read_participants(folder):
        name = row["participant_id"]
        path = Path(folder) / name / "anat" / f"{name}_T1w.nii.gz"
        ids[relative_path(path, root)] = row["volume_id"]
    return ids


def recipe_of(folder: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return the recipes of a generated set by volume identifier, as plain values for JSON.

    Each holds the fields of `voxcast.images.recipe.Recipe` and ``generator_version``.
    """
    return {row["volume_id"]: recipe_of_row(row) for row in read_participants(folder)}


def relative_path(path: str | os.PathLike[str], root: str | os.PathLike[str]) -> str:
    """Return a path as image lists hold it: relative to `root` if it is below."""
    path, root = Path(path).absolute(), Path(root).absolute()
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def recipe_of_row(row: dict[str, str]) -> dict[str, Any]:
    """Return the recipe in a row of the table; see `recipe_of`."""
    # Columns of type str hold bare words, all others JSON.
    values: dict[str, Any] = {"generator_version": row["generator_version"]}
    for field in fields(Recipe):
        if field.name == "variety" and not row.get("variety"):
            continue  # a head as the template's
        text = row[field.name]
        values[field.name] = text if field.type == "str" else json.loads(text)
    return values
