"""A pool of work: a folder on a shared file system from which any number of workers take cells.

``pool.json`` says what runs need; ``cells`` lists the cells; `voxcast.hpc.tokens` has their state;
``runs`` holds one folder for each run on record, as those of a campaign; ``partial`` the runs that
are being made; ``errors`` the attempts that ended otherwise; ``workers`` one file for each worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.campaigns.settings import Conditions
from voxcast.errors import RunError
from voxcast.files import read_json, write_json
from voxcast.hpc.pool_cells import PoolCell, read_cells, write_cells
from voxcast.hpc.tokens import Tokens
from voxcast.jobs.claim import file_system_time
from voxcast.jobs.escalate import Limits
from voxcast.records import App, of_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FORMAT = 1
POOL_FILE = "pool.json"
MAKING = ".making"
FOLDERS = ("cells", "runs", "partial", "errors", "workers", "parts")
ABANDONED_S = 300.0  # a process that makes a pool says so at least every few seconds
TOKENS_PER_TOUCH = 1000


@dataclass(frozen=True)
class PoolSettings:
    """What the runs of a pool need; the content of ``pool.json``.

    Attributes
    ----------
    name : str
        Of the campaign, or of whatever the cells are from.
    apps : mapping
        Applications by name.
    paths : mapping
        File of each volume by volume id.
    recipes : mapping
        Of generated volumes, by volume id.
    project : str
        Folder that relative paths begin at.
    conditions : Conditions
        How each run is measured. A run that reaches their time limit is on record as such.
    bounds : Limits
        Of attempts; the longest time and the most memory that any worker will have.
    mapped_files_bytes : mapping
        By application: what counts against a worker's job beyond the memory of a run, see
        `voxcast.allocation.mapped_files`. Nothing for those that it leaves out.
    heartbeat_s, stale_s : float
        How often workers give a sign of life; after what time without one they are given up.
    """

    name: str
    apps: Mapping[str, App]
    paths: Mapping[str, Path]
    project: str
    recipes: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    bounds: Limits = field(default_factory=lambda: Limits(max_failures=2))
    mapped_files_bytes: Mapping[str, int] = field(default_factory=dict)
    heartbeat_s: float = 20.0
    stale_s: float = 180.0

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> PoolSettings:
        """Return the settings with the fields that `to_record` gave."""
        bounds: dict[str, Any] = {
            n: float("inf") if v is None else v for n, v in fields["bounds"].items()
        }
        return cls(
            name=fields["name"],
            apps={name: of_fields(App, app) for name, app in fields["apps"].items()},
            paths={volume: Path(path) for volume, path in fields["paths"].items()},
            project=fields["project"],
            recipes=fields["recipes"],
            conditions=Conditions(**fields["conditions"]),
            bounds=Limits(**bounds),
            mapped_files_bytes=dict(fields.get("mapped_files_bytes", {})),
            heartbeat_s=float(fields["heartbeat_s"]),
            stale_s=float(fields["stale_s"]),
        )

    def to_record(self) -> dict[str, Any]:
        """Return the fields; None stands for no bound."""
        bounds = dataclasses.asdict(self.bounds)
        return {
            "format": FORMAT,
            "voxcast_version": voxcast.__version__,
            "name": self.name,
            "apps": {name: dataclasses.asdict(app) for name, app in self.apps.items()},
            "paths": {volume: str(path) for volume, path in self.paths.items()},
            "project": self.project,
            "recipes": dict(self.recipes),
            "conditions": dataclasses.asdict(self.conditions),
            "bounds": {n: None if v == float("inf") else v for n, v in bounds.items()},
            "mapped_files_bytes": dict(self.mapped_files_bytes),
            "heartbeat_s": self.heartbeat_s,
            "stale_s": self.stale_s,
        }


@dataclass(frozen=True)
class Pool:
    """A pool, opened with `open_pool` or made with `make_pool`."""

    folder: Path
    settings: PoolSettings

    @property
    def tokens(self) -> Tokens:
        """The states of the cells."""
        return Tokens(self.folder)

    @property
    def runs(self) -> Path:
        """Folder of the runs on record."""
        return self.folder / "runs"

    @property
    def workers(self) -> Path:
        """Folder of the workers' files."""
        return self.folder / "workers"

    def partial(self, name: str) -> Path:
        """Return the folder in which the run of a claim is made."""
        return self.folder / "partial" / name

    def cells(self) -> dict[str, PoolCell]:
        """Return all cells by key, without parts."""
        cells: dict[str, PoolCell] = {}
        for path in self.cell_files():
            cells |= read_cells(path)
        return cells

    def cell_files(self) -> list[Path]:
        """Return the lists of cells, in the order in which they were added."""
        return sorted((self.folder / "cells").glob("[!.]*.jsonl"))

    def add(self, cells: Iterable[PoolCell]) -> int:
        """Add the cells that the pool does not have yet; return their number.

        Workers that are at it take them too. Safe to be killed and called again: tokens come
        before the list by which workers know of their cells.

        Raises
        ------
        RunError
            If another process is adding cells.
        """
        with _making(self.folder) as touch:
            present = self.cells()
            new = {c.key: c for c in cells if c.key not in present}
            for number, key in enumerate(new):
                if number % TOKENS_PER_TOUCH == 0:
                    touch()
                self.tokens.create(key)
            if new:
                name = f"{len(self.cell_files()) + 1:04d}.jsonl"
                write_cells(self.folder / "cells" / name, new.values())
        return len(new)

    def retry(self) -> int:
        """Let the cells wait again that were given up; return their number.

        Their attempts are kept below ``errors/earlier``, and count no more.
        """
        earlier = self.folder / "errors" / "earlier"
        earlier.mkdir(mode=0o700, exist_ok=True)
        retried = 0
        for key, attempts in self.tokens.given_up().items():
            for path in (self.folder / "errors").glob(f"{key}.*.json"):
                with contextlib.suppress(FileNotFoundError):
                    path.rename(earlier / f"{path.stem}.{time.time_ns()}.json")
            retried += self.tokens.retry(key, attempts)
        return retried

    def check_writable(self) -> None:
        """Check that a worker may write here.

        Raises
        ------
        RunError
            If it may not.
        """
        for name in ("claims", "runs", "partial", "errors", "workers"):
            path = self.folder / name
            if not os.access(path, os.W_OK | os.X_OK):
                raise RunError("cannot be written to", path, "a worker needs to write there")


def make_pool(folder: Path, settings: PoolSettings) -> Pool:
    """Make a pool, or bring the settings of one up to date; its cells stay.

    Raises
    ------
    RunError
        If the folder is a pool of another version.
    """
    if is_pool(folder):
        open_pool(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    Tokens(folder).make_folders()
    write_json(folder / POOL_FILE, settings.to_record())
    (folder / POOL_FILE).chmod(0o600)
    return Pool(folder, settings)


def is_pool(folder: Path) -> bool:
    """Return whether a folder holds a pool, of any version."""
    return (folder / POOL_FILE).is_file()


def open_pool(folder: Path) -> Pool:
    """Open a pool.

    Raises
    ------
    RunError
        If the folder is none, or one of another version.
    """
    path, made_by, here = folder / POOL_FILE, "", voxcast.__version__
    try:
        content = read_json(path)
        version, made_by = content["format"], content.get("voxcast_version", "")
        if version != FORMAT:
            release = f", made by voxcast {made_by}" if made_by else ""
            problem = f"a pool of format {version}{release}; voxcast {here} reads {FORMAT}"
            then = "work on it with the version of voxcast that made it, or make it again"
            raise RunError(problem, folder, then)
        return Pool(folder, PoolSettings.from_record(content))
    except FileNotFoundError:
        then = "`voxcast campaign run NAME --cluster CLUSTER` makes one"
        raise RunError(f"not a pool: it has no {POOL_FILE}", folder, then) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if made_by not in ("", here):
            problem = f"made by voxcast {made_by}, which voxcast {here} cannot read ({error})"
            raise RunError(problem, path, "work on it with that version") from None
        raise RunError(f"is damaged ({error!r})", path, "make it again") from None


@contextlib.contextmanager
def _making(folder: Path) -> Iterator[Any]:
    """Add cells alone; a folder is the sign, as file systems make one for one process only."""
    sign = folder / MAKING
    with contextlib.suppress(FileNotFoundError):
        if file_system_time(folder) - sign.stat().st_mtime >= ABANDONED_S:
            sign.rename(folder / f"{MAKING}-{os.getpid()}-{time.monotonic_ns()}")
    for abandoned in folder.glob(f"{MAKING}-*"):
        with contextlib.suppress(OSError):
            abandoned.rmdir()
    try:
        sign.mkdir()
    except FileExistsError:
        raise RunError("another process is adding cells here", folder, "wait for it") from None
    try:
        yield lambda: os.utime(sign)
    finally:
        sign.rmdir()
