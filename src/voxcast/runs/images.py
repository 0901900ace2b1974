"""Images of imported runs, matched by the labels of subject and session.

An import that knows its images carries their headers and characteristics in ``images.parquet``
beside its parts, as a recorded campaign does, so that its runs can train.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError, one_line
from voxcast.files import atomic_path
from voxcast.images.bids import find_images, stem
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.images.summary import Grids, summaries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from voxcast.images.bids import ImageEntry
    from voxcast.images.characteristics import Characteristic

_SUBJECT = re.compile(r"(?:^|[_/])sub-([a-zA-Z0-9]+)")
_SESSION = re.compile(r"(?:^|[_/])ses-([a-zA-Z0-9]+)")
_LISTED_FILES = 3


class RunImages:
    """The images of a folder, read when a run needs them.

    Parameters
    ----------
    folder : Path
        BIDS dataset, or folder of NIfTI files whose names are subjects or hold BIDS labels.
    coarse_points : int
        Grid of the characteristics.
    lab : mapping, optional
        Characteristics of a laboratory, see `voxcast.images.lab_characteristics`.

    Raises
    ------
    ImageError
        If the folder is missing or holds no volume.
    """

    def __init__(
        self,
        folder: Path,
        coarse_points: int,
        lab: Mapping[str, Characteristic] | None = None,
    ) -> None:
        self.coarse_points = coarse_points
        self._lab = lab or {}
        self._entries: dict[str, list[ImageEntry]] = {}
        for entry in find_images(folder):
            self._entries.setdefault(_labels(entry.subject)[0], []).append(entry)
        self._matched: dict[str, dict[str, Any]] = {}

    def match(self, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
        """Set ``volume_id`` and ``subject`` of the runs that have one image.

        Parameters
        ----------
        rows : sequence of dict
            Rows of the history. The session of a run is its label ``session``, or in its subject.

        Returns
        -------
        dict of str to int
            Number of runs without an image, by reason.
        """
        choices = [self._choose(row) for row in rows]
        paths = sorted({entry.path for entry in choices if not isinstance(entry, str)})

        looks = summaries(paths, Grids(self.coarse_points), lab=self._lab)
        look_of = dict(zip(paths, looks, strict=True))
        without_image: Counter[str] = Counter()
        for row, entry in zip(rows, choices, strict=True):
            look = entry if isinstance(entry, str) else look_of[entry.path]
            if isinstance(entry, str) or isinstance(look, str):
                without_image[str(look)] += 1
            else:
                image = look.facts(_labels(entry.subject)[0], self.coarse_points, self._lab)
                row |= {name: image[name] for name in ("subject", "volume_id")}
                self._matched[image["volume_id"]] = image
        return dict(without_image.most_common())

    def add_to(self, batch: Path) -> None:
        """Write the images of the matched runs into ``batch``; see `add_images`."""
        add_images(batch, self._matched.values())

    def _choose(self, row: dict[str, Any]) -> ImageEntry | str:
        """Return the image of a run, or the reason why it has none."""
        if not row["subject"]:
            return "the run states no subject"
        subject, session = _labels(row["subject"])
        session = json.loads(row["labels_json"] or "{}").get("session") or session
        session = str(session).removeprefix("ses-")
        entries = self._entries.get(subject, [])
        name = f"subject {subject}"
        if session:
            entries = [e for e in entries if session == (e.session or _labels(stem(e.path))[1])]
            name += f", session {session}"
        if len(entries) == 1:
            return f"{name}: {entries[0].problem}" if entries[0].problem else entries[0]
        if not entries:
            return f"no image of {name}"
        files = [entry.path.name for entry in entries]
        listed = ", ".join(files[:_LISTED_FILES]) + ", …" * (len(files) > _LISTED_FILES)
        return f"{len(files)} images of {name}: {listed}; give a folder with one of them"


def _labels(name: str) -> tuple[str, str]:
    """Return the labels of subject and session in a name; a name without labels is a subject.

    Examples
    --------
    >>> _labels("sub-01_ses-2_T1w"), _labels("01"), _labels("head_7")
    (('01', '2'), ('01', ''), ('head_7', ''))
    """
    subject, session = _SUBJECT.search(name), _SESSION.search(name)
    return subject[1] if subject else name, session[1] if subject and session else ""


def add_images(batch: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write images into ``batch``, beside the images in it; of the same voxels the last count.

    Raises
    ------
    TableError
        If the images of earlier runs cannot be read.
    """
    import pandas as pd

    path, images = batch / RECORDED_IMAGES, pd.DataFrame(list(rows))
    if path.is_file():
        try:
            images = pd.concat([pd.read_parquet(path), images])
        except (OSError, ValueError) as error:
            then = "move it out of the history, and import again into a new folder"
            raise TableError(f"cannot be read ({one_line(error)[:120]})", path, then) from None
    images = images.drop_duplicates("volume_id", keep="last")
    with atomic_path(path) as partial:
        images.sort_values(["subject", "volume_id"]).to_parquet(partial, index=False)
