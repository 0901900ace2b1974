"""Images of imported runs, matched by the labels of subject and session.

An import that knows its images carries their headers and characteristics in ``images.parquet``
beside its parts, as a recorded campaign does, so that its runs can train.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError, one_line
from voxcast.files import atomic_path, canonical_json
from voxcast.images.bids import find_images, stem
from voxcast.images.catalogue import look_at
from voxcast.images.characteristic_versions import VERSIONS, versions_of
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.log import progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.images.bids import ImageEntry
    from voxcast.images.catalogue import Look
    from voxcast.images.characteristics import Characteristic

_SUBJECT = re.compile(r"(?:^|_)sub-([a-zA-Z0-9]+)")
_SESSION = re.compile(r"(?:^|_)ses-([a-zA-Z0-9]+)")
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
        self._looks: dict[Path, Look] = {}

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
        chosen: dict[int, ImageEntry] = {}
        without_image: Counter[str] = Counter()
        for number, row in enumerate(rows):
            entry, reason = self._choose(row)
            if entry is None:
                without_image[reason] += 1
            else:
                chosen[number] = entry
        self._read({entry.path for entry in chosen.values()})
        for number, entry in chosen.items():
            look = self._looks[entry.path]
            if look.voxel_sha256 is None:
                without_image[str(look.problem)] += 1
            else:
                rows[number]["subject"] = _labels(entry.subject)[0]
                rows[number]["volume_id"] = look.voxel_sha256[:16]
        return dict(without_image.most_common())

    def add_to(self, batch: Path) -> None:
        """Write the images of the matched runs into ``batch``; see `add_images`."""
        add_images(batch, self._table())

    def _choose(self, row: dict[str, Any]) -> tuple[ImageEntry | None, str]:
        """Return the image of a run, or the reason why it has none."""
        if not row["subject"]:
            return None, "the run states no subject"
        subject, session = _labels(row["subject"])
        stated = json.loads(row["labels_json"] or "{}").get("session")
        session = str(stated).removeprefix("ses-") if stated else session
        entries = self._entries.get(subject, [])
        name = f"subject {subject}"
        if session:
            entries = [entry for entry in entries if session == _session(entry)]
            name += f", session {session}"
        if len(entries) == 1:
            problem = entries[0].problem
            return (None, f"{name}: {problem}") if problem else (entries[0], "")
        if not entries:
            return None, f"no image of {name}"
        files = [entry.path.name for entry in entries]
        more = ", …" if len(files) > _LISTED_FILES else ""
        listed = ", ".join(files[:_LISTED_FILES]) + more
        return None, f"{len(files)} images of {name}: {listed}; give a folder with one of them"

    def _read(self, paths: set[Path]) -> None:
        new_paths = sorted(paths - set(self._looks))

        def look(path: Path) -> Look:
            return look_at(path, None, self.coarse_points, None, lab=self._lab)

        with ThreadPoolExecutor(max_workers=2) as pool:
            looks = progress(
                pool.map(look, new_paths), total=len(new_paths), desc="reading volumes",
                unit="volume",
            )  # fmt: skip
            self._looks |= dict(zip(new_paths, looks, strict=True))

    def _table(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for entry in (entry for entries in self._entries.values() for entry in entries):
            look = self._looks.get(entry.path)
            if look is None or look.header is None or look.voxel_sha256 is None:
                continue
            identity = {
                "volume_id": look.voxel_sha256[:16],
                "subject": _labels(entry.subject)[0],
                "coarse_points": self.coarse_points,
                VERSIONS: canonical_json(versions_of(self._lab)),
            }
            storage = {**look.header.columns(), "voxel_sha256": look.voxel_sha256}
            rows.append({**identity, **storage, **(look.characteristics or {})})
        return pd.DataFrame(rows)


def _labels(name: str) -> tuple[str, str]:
    """Return the labels of subject and session in a name; a name without labels is a subject.

    Examples
    --------
    >>> _labels("sub-01_ses-2_T1w"), _labels("01"), _labels("head_7")
    (('01', '2'), ('01', ''), ('head_7', ''))
    """
    subject, session = _SUBJECT.search(name), _SESSION.search(name)
    return subject[1] if subject else name, session[1] if subject and session else ""


def _session(entry: ImageEntry) -> str:
    return entry.session or _labels(stem(entry.path))[1]


def add_images(batch: Path, table: pd.DataFrame) -> None:
    """Write images into ``batch``, beside the images in it; of the same voxels the last count.

    Raises
    ------
    TableError
        If the images of earlier runs cannot be read.
    """
    import pandas as pd

    path = batch / RECORDED_IMAGES
    tables = [_earlier_images(path)] if path.is_file() else []
    tables.append(table)
    images = pd.concat([table for table in tables if len(table)] or tables)
    images = images.drop_duplicates("volume_id", keep="last")
    with atomic_path(path) as partial:
        images.sort_values(["subject", "volume_id"]).to_parquet(partial, index=False)


def _earlier_images(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        images = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        then = "move it out of the history, and import again into a new folder"
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, then) from None
    if "volume_id" not in images or "subject" not in images:
        raise TableError("is no table of images", path, "move it out of the history")
    return images
