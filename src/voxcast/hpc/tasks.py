"""A task: one image through the application, with what it may ask for."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.hpc.escalation import Bounds, Ladder
from voxcast.images.bids import stem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
_LONGEST_NAME = 120
_HASH_DIGITS = 8


@dataclass(frozen=True)
class Task:
    """One image, or a run without input.

    Attributes
    ----------
    name : str
        Name of its folder of outputs: letters, digits, ``_``, ``.`` and ``-``.
    image : str
        Absolute path; empty for an application without input.
    partition, device : str
        The same in every attempt.
    usd_per_hour : float
        Price of an hour of the first request; 0 where the cluster charges nothing.
    runtime_s_median, memory_bytes_median : float
        Predicted; NaN where only a request was given.
    risk : float or None
        Upper bound of the probability that the first request is too small; None if not known.
    max_walltime_s, max_memory_bytes : float
        The largest request of its partition.
    volume : dict or None
        Identity, header and characteristics of the image, see `voxcast.images.volume_facts`.
    prediction : dict or None
        What the request rests on: ``runtime_s_upper``, ``peak_rss_bytes_upper`` and their
        ``confidence``, whether they are ``calibrated``, and ``family``, ``model_version`` and
        ``forecaster_sha256`` of the model, as far as known.
    """

    name: str
    image: str
    partition: str
    device: str
    ladder: Ladder
    usd_per_hour: float = 0.0
    runtime_s_median: float = math.nan
    memory_bytes_median: float = math.nan
    risk: float | None = None
    max_walltime_s: float = math.inf
    max_memory_bytes: float = math.inf
    volume: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None

    @property
    def runtime_s_upper(self) -> float:
        """Upper bound of the predicted runtime; NaN where only a request was given."""
        return float((self.prediction or {}).get("runtime_s_upper", math.nan))

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Task:
        """Return the task with the fields that `to_record` gave."""
        numbers = {
            name: absent if fields.get(name) is None else float(fields[name])
            for name, absent in _ABSENT.items()
        }
        ladder = fields["ladder"]
        rungs = Ladder(
            tuple(map(float, ladder["walltimes_s"])), tuple(map(int, ladder["memories_bytes"])),
            int(ladder["cpus"]), int(ladder["gpus"]),
        )  # fmt: skip
        return cls(**{**fields, **numbers, "ladder": rungs})

    def to_record(self) -> dict[str, Any]:
        """Return the fields, with null for a number that is not known or not limited."""
        fields = asdict(self)
        return fields | {
            name: fields[name] if math.isfinite(fields[name]) else None for name in _ABSENT
        }

    def bounds(self, common: Bounds) -> Bounds:
        """Return the bounds of its attempts: the common ones, within those of its partition."""
        return Bounds(
            **{
                **asdict(common),
                "max_walltime_s": min(common.max_walltime_s, self.max_walltime_s),
                "max_memory_bytes": min(common.max_memory_bytes, self.max_memory_bytes),
            }
        )


_ABSENT = {
    "runtime_s_median": math.nan,
    "memory_bytes_median": math.nan,
    "max_walltime_s": math.inf,
    "max_memory_bytes": math.inf,
}


def task_names(images: Sequence[str]) -> list[str]:
    """Return a name for each image, safe for any file system and shell, and all different.

    Examples
    --------
    >>> task_names(["/a/sub-01_T1w.nii.gz", "/a/my head$(1).nii"])
    ['sub-01_T1w', 'my_head_1']
    """
    names = [_safe(stem(Path(image))) for image in images]
    counts = Counter(names)
    return [
        f"{name}-{_digest(image)}" if counts[name] > 1 else name
        for name, image in zip(names, images, strict=True)
    ]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_DIGITS]


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_.-")[:_LONGEST_NAME] or "image"
