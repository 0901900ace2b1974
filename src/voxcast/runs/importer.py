"""Import of files into one new part of a history, with an account of every record.

A part is a folder ``<date>-<source>-<number>`` like the parts of measured runs, with an additional
file ``import.json``, the account. Runs in an earlier part are not imported again.

Images of imported runs are matched by the labels of subject and session. Their headers and
characteristics are kept in ``images.parquet`` beside the parts, so that the runs can train.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from voxcast.errors import ConfigError, TableError, one_line
from voxcast.files import atomic_path, locked, sha256_file
from voxcast.images.catalogue import RECORDED_IMAGES
from voxcast.images.sources import find_images, stem
from voxcast.images.summary import Grids, summaries
from voxcast.runs import csv_table, slant, slurm, workflows
from voxcast.runs.imported import ImportedRun, Records, text_of
from voxcast.runs.store import (
    add_part,
    free_part,
    load_history,
    recorded_parts,
    sweep_partial,
)
from voxcast.runs.table import PHASE_DTYPES, TRACE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from voxcast.images.sources import ImageFile
    from voxcast.runs.csv_table import ColumnMap
    from voxcast.runs.imported import NamePattern


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

    Raises
    ------
    ImageError
        If the folder is missing or holds no volume.
    """

    def __init__(self, folder: Path, coarse_points: int) -> None:
        self.coarse_points = coarse_points
        self._entries: dict[str, list[ImageFile]] = {}
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
        paths = sorted({Path(entry.path) for entry in choices if not isinstance(entry, str)})

        looks = summaries(paths, Grids(self.coarse_points))
        look_of = dict(zip(paths, looks, strict=True))
        without_image: Counter[str] = Counter()
        for row, entry in zip(rows, choices, strict=True):
            look = entry if isinstance(entry, str) else look_of[Path(entry.path)]
            if isinstance(entry, str) or isinstance(look, str):
                without_image[str(look)] += 1
            else:
                image = look.facts(_labels(entry.subject)[0], self.coarse_points)
                row |= {name: image[name] for name in ("subject", "volume_id")}
                self._matched[image["volume_id"]] = image
        return dict(without_image.most_common())

    def add_to(self, batch: Path) -> None:
        """Write the images of the matched runs into ``batch``; see `add_images`."""
        add_images(batch, self._matched.values())

    def _choose(self, row: dict[str, Any]) -> ImageFile | str:
        """Return the image of a run, or the reason why it has none."""
        if not row["subject"]:
            return "the run states no subject"
        subject, session = _labels(row["subject"])
        session = json.loads(row["labels_json"] or "{}").get("session") or session
        session = str(session).removeprefix("ses-")
        entries = self._entries.get(subject, [])
        name = f"subject {subject}"
        if session:
            entries = [
                e for e in entries if session == (e.session or _labels(stem(Path(e.path)))[1])
            ]
            name += f", session {session}"
        if len(entries) == 1:
            return f"{name}: {entries[0].problem}" if entries[0].problem else entries[0]
        if not entries:
            return f"no image of {name}"
        files = [Path(entry.path).name for entry in entries]
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


ACCOUNT_FILE = "import.json"
# Columns needed by a model of the runs; a source may not state them.
WANTED = ("peak_rss_bytes", "cpu_s", "cpus", "subject")
CLASH = (
    "has the identity of a run with another time or outcome; "
    "make identities unique (for a CSV table by `identity` and `study` of its map)"
)
_QUARTER_HOUR_S = 900
LONGEST_HEADER = 100_000  # characters

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remark:
    """Reason why a record was not imported, or one of its fields is unknown."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class Account:
    """Result of an import; ``read = imported + duplicates + len(skipped) + len(bad)``.

    Attributes
    ----------
    files : dict of str to str
        SHA-256 of each file by name.
    duplicates : int
        Number of records in an earlier part, or twice in the files.
    skipped : list of Remark
        Valid records without a finished run.
    bad : list of Remark
        Records that could not be used.
    unread : list of Remark
        Fields of imported runs that could not be read, and are unknown.
    unknown : dict of str to int
        Number of imported runs without a known value, by column; see `WANTED`.
    with_image : int
        Number of imported runs that matched one of the images given.
    without_image : dict of str to int
        Number of imported runs that matched none of the images given, by reason.
    part : str or None
        The folder that was written; None if there were no new runs.
    """

    source: str
    files: dict[str, str]
    read: int
    imported: int
    duplicates: int
    skipped: list[Remark] = field(default_factory=list)
    bad: list[Remark] = field(default_factory=list)
    unread: list[Remark] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    with_image: int = 0
    without_image: dict[str, int] = field(default_factory=dict)
    part: str | None = None


def import_files(
    kind: str,
    files: Sequence[Path],
    into: Path,
    app: str | None = None,
    column_map: ColumnMap | None = None,
    *,
    app_pattern: NamePattern | None = None,
    subject_pattern: NamePattern | None = None,
    images: RunImages | None = None,
    choose: Callable[[Records], None] = lambda records: None,
) -> Account:
    """Read ``files`` and add new runs to the folder ``into``.

    All files are read first; then all new runs are written, or none. With ``images`` the runs get
    their volumes, and ``into`` their headers and characteristics. ``choose`` may change the
    records of a file before they are added.

    Raises
    ------
    ConfigError
        If a column map is missing, or given for a kind that takes none.
    TableError
        If a file is not of this kind, or the history cannot be read.
    """
    if kind == "csv" and column_map is None:
        then = "give --map FILE; see the documentation for an example"
        raise ConfigError("needs a column map", kind, then)
    if kind != "csv" and column_map is not None:
        raise ConfigError("takes no column map", kind, "leave out --map")
    sources = [
        csv_table.read(path, app, column_map) if column_map else READERS[kind](path, app)
        for path in files
    ]
    for records in sources:
        records.set_names(app_pattern, subject_pattern)
        choose(records)
    try:
        with locked(into):
            sweep_partial(into)
            return _add(kind, sources, into, images)
    except OSError as error:
        raise TableError(f"cannot be written to: {error.strerror}", into) from error


def from_slurm(path: Path, app: str | None = None) -> Records:
    """Read a file written by ``sacct -P``.

    With ``-D`` a requeued job has one job line per attempt; each attempt is a run.

    Raises
    ------
    TableError
        If the file is not accounting.
    """
    jobs = slurm.read(path, details=True)
    records = Records("sacct", path, refused=jobs.refused)
    if "peak_rss_bytes" in jobs.columns and "tasks" not in jobs.columns:
        logger.warning("%s: no column NTasks: each step is taken to be of one task", path)
    not_run: Any
    for not_run in jobs.not_run.itertuples():
        never = " and was never run" if not_run.outcome else ""
        records.skipped.add(f"job {not_run.job_id} is {not_run.state}{never}", [not_run.line])
    unread = jobs.unread.by_line()
    row: Any
    for row in jobs.frame.itertuples():
        records.record(row.line, partial(_job, row, app, unread.get(row.line, [])))
    return records


def kind_of(path: Path) -> str:
    """Return the kind of a file of accounting by its first line.

    Raises
    ------
    TableError
        If it is none of `READERS`, or cannot be read.
    """
    with text_of(path) as (stream, _):
        first = stream.readline(LONGEST_HEADER).lower()
    names = re.split(r"[|\t]", first.strip())
    if "|" in first and {"jobid", "jobidraw"} & set(names):
        return "sacct"
    if "realtime" in names:
        return "nextflow"
    if names[:2] == ["s", "h:m:s"]:
        return "snakemake"
    then = "give what `sacct -P`, Nextflow or Snakemake wrote, or a CSV table with --map"
    raise TableError("is accounting of no known kind", path, then)


READERS = {
    "sacct": from_slurm,
    "nextflow": workflows.nextflow,
    "snakemake": workflows.snakemake,
    "slant": slant.read,
}
KINDS = (*READERS, "csv")


def _job(row: Any, app: str | None, unread: list[str]) -> ImportedRun:
    has_peak = not math.isnan(row.peak_rss_bytes)
    method = "slurm_maxrss" if row.tasks == 1 else "slurm_tresusageintot"
    single_node = row.node if re.fullmatch(r"[\w.-]+", row.node) else ""
    array_job, in_array, _ = row.job_id.partition("_")
    het_job, in_het_job, _ = row.job_id.partition("+")
    return ImportedRun(
        # Job numbers recur after a requeue, so the start is part of the identity. It is local
        # time; zones differ by whole quarters of an hour.
        identity=[
            row.job_id,
            None if math.isnan(row.start_s) else int(row.start_s % _QUARTER_HOUR_S),
            *filter(None, [row.cluster]),
        ],
        values={
            "app": app or row.name,
            "host_id": single_node,
            "node_type": row.partition,
            "device": "gpu" if row.gpus else "cpu",
            "cpus": row.cpus,
            "gpus": row.gpus,
            "mem_limit_bytes": row.mem_limit_bytes,
            "outcome": row.outcome,
            "exit_status": -row.signal if row.signal else row.exit_status,
            "limit_s": row.limit_s,
            "runtime_s": row.runtime_s,
            "cpu_s": row.cpu_s,
            "cpu_method": "" if math.isnan(row.cpu_s) else "slurm_totalcpu",
            "peak_rss_bytes": row.peak_rss_bytes,
            "memory_method": method if has_peak else "",
            "started_at": row.started_at,
        },
        labels={
            "job_id": row.job_id,
            "job_name": row.name,
            "state": row.state,
            "nodes": "" if single_node else row.node,
            "cluster": row.cluster,
            "user": row.user,
            "account": row.account,
            "partition": row.partition,
            "submitted_at": row.submitted_at,
            "array_job": array_job if in_array else "",
            "het_job": het_job if in_het_job else "",
            "tasks": int(row.tasks) if row.tasks > 1 else None,
            "peak_rss_at_least_bytes": (
                None if math.isnan(row.peak_at_least_bytes) else int(row.peak_at_least_bytes)
            ),
            "note": row.note,
        },
        name=row.name,
        unread=unread,
        folder=row.work_dir,
    )


def _add(kind: str, sources: Sequence[Records], into: Path, images: RunImages | None) -> Account:
    """Add the new runs of all sources; the caller holds the lock of the history."""
    run_by_key = _earlier_runs(into)
    rows: list[dict[str, Any]] = []
    unread: list[Remark] = []
    duplicates = 0
    read = sum(records.read for records in sources)
    for records in sources:
        new_lines = set()
        for row, line in zip(records.rows, records.lines, strict=True):
            earlier = run_by_key.setdefault(row["cell_key"], row)
            if earlier is row:
                rows.append(row)
                new_lines.add(line)
            elif _same_run(earlier, row):
                duplicates += 1
            else:
                records.refused.add(CLASH, [line])
        unread += [
            Remark(str(records.path), line, reason)
            for line, reason in records.unread.listed()
            if line in new_lines
        ]
    without_image = {} if images is None else images.match(rows)
    missing = {name: sum(row[name] in (None, "", 0) for row in rows) for name in WANTED}
    account = Account(
        kind,
        _hashes(sources),
        read,
        len(rows),
        duplicates,
        [Remark(str(s.path), *remark) for s in sources for remark in s.skipped.listed()],
        [Remark(str(s.path), *remark) for s in sources for remark in s.refused.listed()],
        unread,
        {name: count for name, count in missing.items() if count},
        0 if images is None else len(rows) - sum(without_image.values()),
        without_image,
    )
    if images is not None and account.with_image:
        images.add_to(into)  # before the runs, which need it
    return _write(into, account, rows, sources) if rows else account


def _earlier_runs(into: Path) -> dict[Any, dict[Any, Any]]:
    """Return the runs in the history by key."""
    if not recorded_parts(into):
        return {}
    runs = load_history([into]).set_index("cell_key")
    return dict(runs[["outcome", "runtime_s"]].to_dict("index"))


def _write(
    into: Path, account: Account, rows: list[dict[str, Any]], sources: Sequence[Records]
) -> Account:
    runs = frame_of(rows)
    volumes = runs.set_index("cell_key")["volume_id"]
    phases, traces = (
        pd.concat([frame_of([], dtypes), *(t for t in tables if t is not None)])
        for dtypes, tables in (
            (PHASE_DTYPES, [records.phases for records in sources]),
            (TRACE_DTYPES, [records.traces for records in sources]),
        )
    )
    phases = phases.assign(volume_id=phases["cell_key"].map(volumes))
    phases, traces = (t[t["cell_key"].isin(runs["cell_key"])] for t in (phases, traces))
    provenance = {"runs": len(rows), "imported_from": account.source, "files": account.files}
    part = free_part(into, account.source)
    account = replace(account, part=part.name)
    content = asdict(account) | {"imported_at": datetime.now(UTC).isoformat(timespec="seconds")}
    for remark in (*content["skipped"], *content["bad"], *content["unread"]):
        remark["file"] = Path(remark["file"]).name
    add_part(part, runs, provenance, phases, traces, {ACCOUNT_FILE: content})
    return account


def _same_run(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    """Whether two records of one identity describe one run; exports round their times."""
    similar_runtime = math.isclose(
        earlier["runtime_s"], later["runtime_s"], rel_tol=0.02, abs_tol=1.0
    )
    return similar_runtime and earlier["outcome"] == later["outcome"]


def _hashes(sources: Sequence[Records]) -> dict[str, str]:
    """Return the hash of each file by name; equal names are numbered."""
    hashes: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for path in (path for records in sources for path in (records.path, *records.companions)):
        counts[path.name] += 1
        number = f" ({counts[path.name]})" if counts[path.name] > 1 else ""
        hashes[path.name + number] = sha256_file(path)
    return hashes
