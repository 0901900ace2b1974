"""What a champion and the challenger in its shadow answered to the same rows, one line each.

A line has no content and no path of an image: a hash of its characteristics, the application, the
configuration, both versions and their quantiles. The log is bounded: the oldest lines go first.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.files import canonical_json, locked, sha256_of
from voxcast.images.image_identity import image_identity
from voxcast.records import TARGETS
from voxcast.serving.signature import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = "VOXCAST_SHADOW_LOG"
LOG = Path("mlruns/shadow.jsonl")
MAX_BYTES = 16 * 2**20  # of a file, about 40,000 answers
FILES = 4

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShadowAnswer:
    """The answers of both to one row; pairs are of the champion and of the challenger.

    Attributes
    ----------
    at : str
        Time in ISO 8601.
    versions : tuple of str
        Numbers of their versions.
    app, device : str
        What was asked for, as `cpus` and `gpus`.
    image : str
        See `voxcast.images.image_identity`; empty where the request is not known.
    parameters_sha256 : str
        Hash of the application's parameters in the request; empty for the defaults.
    host : str
        The machine that the answers are for, empty where models know no machines.
    quantile : float
        Probability of the upper bounds.
    quantiles : dict of str to tuple
        By target a pair of (lower, median, upper), in seconds or bytes.
    out_of_range, calibrated : tuple of bool
        Of the answers.
    """

    at: str
    versions: tuple[str, str]
    app: str
    device: str
    cpus: int
    gpus: int
    image: str
    parameters_sha256: str
    host: str
    quantile: float
    quantiles: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]]
    out_of_range: tuple[bool, bool]
    calibrated: tuple[bool, bool]

    @classmethod
    def of(
        cls,
        answers: tuple[Mapping[str, Any], Mapping[str, Any]],
        versions: tuple[str, str],
        request: Mapping[str, Any],
        quantile: float,
    ) -> ShadowAnswer:
        """Take from two answers and their request what is logged."""
        first = answers[0]
        return cls(
            datetime.now(UTC).isoformat(timespec="seconds"),
            versions,
            str(first["app"]),
            str(first["device"]),
            int(first["cpus"]),
            int(request.get("gpus") or 0),
            image_identity(request),
            _parameters_sha256(request.get("parameters_json")),
            str(first.get("host") or ""),
            float(quantile),
            {target: _pair(answers, target) for target in TARGETS},
            (bool(first["out_of_range"]), bool(answers[1]["out_of_range"])),
            (bool(first["calibrated"]), bool(answers[1]["calibrated"])),
        )

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> ShadowAnswer:
        """Read what `ShadowLog.add` wrote.

        Raises
        ------
        LookupError, TypeError, ValueError
            If it was written by something else.
        """
        first, second = content["versions"]
        quantiles: dict[str, Any] = {}
        for target in TARGETS:
            pair = [tuple(map(float, values)) for values in content["quantiles"][target]]
            if len(pair) != 2 or any(len(v) != 3 or min(v) <= 0 for v in pair):
                raise ValueError(f"no pair of quantiles: {target}")
            quantiles[target] = tuple(pair)
        a_is_out, b_is_out = content["out_of_range"]
        a_calibrated, b_calibrated = content["calibrated"]
        texts = ("at", "app", "device", "image", "parameters_sha256", "host")
        return cls(
            **{name: str(content[name]) for name in texts},
            versions=(str(first), str(second)),
            cpus=int(content["cpus"]),
            gpus=int(content["gpus"]),
            quantile=float(content["quantile"]),
            quantiles=quantiles,
            out_of_range=(bool(a_is_out), bool(b_is_out)),
            calibrated=(bool(a_calibrated), bool(b_calibrated)),
        )


def _pair(answers: Sequence[Mapping[str, Any]], target: str) -> Any:
    return tuple(tuple(float(row[f"{target}_{name}"]) for name in QUANTILES) for row in answers)


def _parameters_sha256(parameters_json: Any) -> str:
    try:
        parameters = json.loads(str(parameters_json or "{}"))
        return sha256_of(parameters) if parameters else ""
    except (ValueError, RecursionError):
        return "unreadable"


@dataclass(frozen=True)
class ShadowLog:
    """A bounded log of `ShadowAnswer`, which several processes may write.

    Attributes
    ----------
    path : Path
        The newest file; older ones end in ``.1``, ``.2``, …
    max_bytes : int
        Size of one file.
    files : int
        Number of files that stay.
    """

    path: Path
    max_bytes: int = MAX_BYTES
    files: int = FILES
    _warned: list[bool] = field(default_factory=list, repr=False, compare=False)

    def add(
        self,
        champion_rows: Sequence[Mapping[str, Any]],
        challenger_rows: Sequence[Mapping[str, Any]],
        champion_version: str,
        challenger_version: str,
        requests: Sequence[Mapping[str, Any]] | None = None,
        quantile: float = 0.95,
    ) -> None:
        """Append the answers of both to the rows of a request.

        A log that cannot be written is warned of once, and never keeps an answer from a client.

        Parameters
        ----------
        champion_rows, challenger_rows : sequence of mapping
            Answers as of `voxcast.serving.prediction_service.PredictionService.predict`.
        champion_version, challenger_version : str
            Numbers of the versions that answered.
        requests : sequence of mapping, optional
            The rows that were asked. Without them images cannot be told apart, and answers not be
            compared with runs.
        quantile : float
            Probability of the upper bounds.
        """
        asked_rows = requests if requests is not None else [{}] * len(champion_rows)
        versions = (champion_version, challenger_version)
        lines = [
            canonical_json(asdict(ShadowAnswer.of((a, b), versions, request, quantile)))
            for a, b, request in zip(champion_rows, challenger_rows, asked_rows, strict=True)
        ]
        if not lines:
            return
        try:
            self._append(("\n".join(lines) + "\n").encode())
        except OSError as error:
            if not self._warned:
                logger.warning("%s: answers in shadow are not logged: %s", self.path, error)
                self._warned.append(True)

    def _append(self, content: bytes) -> None:
        with locked(self.path.parent):
            if self.path.exists() and self.path.stat().st_size + len(content) > self.max_bytes:
                self._rotate()
            # In one write, so that a process that is killed leaves at most one part of a line.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            handle = os.open(self.path, flags, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    content = b"\n" + content
                os.write(handle, content)
            finally:
                os.close(handle)

    def _rotate(self) -> None:
        for number in range(self.files - 1, 0, -1):
            older = self.path if number == 1 else self._rotated(number - 1)
            if older.exists():
                older.replace(self._rotated(number))

    def _rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def answers(self) -> tuple[list[ShadowAnswer], int]:
        """Return all answers, the oldest first, and the number of lines that cannot be read.

        Raises
        ------
        OSError
            If a file cannot be read.
        """
        answers, unreadable = [], 0
        with locked(self.path.parent):  # no file is moved meanwhile
            paths = [*(self._rotated(n) for n in range(self.files - 1, 0, -1)), self.path]
            texts = [path.read_bytes() for path in paths if path.exists()]
        for line in b"\n".join(texts).splitlines():
            if not line.strip():
                continue
            try:
                answers.append(ShadowAnswer.from_json(json.loads(line)))
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
                unreadable += 1
        return answers, unreadable


def shadow_log(project: Path) -> ShadowLog:
    """Return the log of a project, or that which ``VOXCAST_SHADOW_LOG`` names."""
    return ShadowLog(Path(os.environ.get(VARIABLE) or project / LOG))
