"""A pool of work: a folder on a shared file system from which any number of workers draw cells.

``pool.json`` says what runs need, ``cells`` lists the cells, ``events.jsonl`` records their
fate. A cell that waits or is run has one file, its ticket::

    todo/KEY.ATTEMPT.SECONDS.MIB.CPUS.GPUS  waits, with its request in the name
    held/TICKET~WORKER~N                    is run by a worker, in the folder partial/TICKET~...
    ended/TICKET~WORKER~N/                  the folder of the run, for the follower
    runs/RECORD_KEY/                        a run on record

A ticket moves by a rename, which is atomic and succeeds for one process on local disks, NFS and
parallel file systems. Workers draw tickets and leave runs, see `voxcast.jobs.draw`; the events and
the runs on record are written by the one process that follows the pool, see `voxcast.jobs.rounds`.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.errors import RunError
from voxcast.files import atomic_path, read_json, sync_folder, write_json
from voxcast.jobs.escalate import Limits, RequestSequence
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, Request, as_fields, of_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 2
POOL_FILE, EVENTS_FILE, RESULT_FILE = "pool.json", "events.jsonl", "attempt.json"
TODO, HELD, PARTIAL, ENDED = "todo", "held", "partial", "ended"
FOLDERS = ("cells", TODO, HELD, PARTIAL, ENDED, "runs", "part_runs", "workers")
MIB = 2**20


@dataclass(frozen=True)
class PoolCell:
    """A cell of a pool, which any machine may run: it leaves the host class open.

    Attributes
    ----------
    requests : RequestSequence
        The times and memories that its attempts request.
    expected_s : float
        Expected wall time.
    part_of : str
        Key of the cell that it is a part of; empty for a complete cell.
    """

    cell: Cell
    requests: RequestSequence
    expected_s: float
    part_of: str = ""

    def __post_init__(self) -> None:
        if self.cell.host_class:
            raise ValueError("a cell of a pool leaves the host class open")

    @property
    def key(self) -> str:
        """Key of the cell in the pool."""
        return self.cell.key


@dataclass(frozen=True)
class PoolSettings:
    """Settings that the runs of a pool need; the content of ``pool.json``.

    Attributes
    ----------
    name : str
        Name of the campaign, or of another origin of the cells.
    paths : dict of str to str
        File of each volume by volume id.
    recipes : dict
        Recipes of generated volumes by volume id.
    project : str
        Folder that relative paths begin at.
    conditions : Conditions
        How each run is measured. A run that reaches their time limit is on record as such.
    limits : Limits
        Limits of the attempts: the longest time and the most memory that any worker will have.
    mapped_files_bytes : dict
        By application: what counts against a worker's job beyond the memory of a run, see
        `voxcast.allocation.site`; nothing for applications that it leaves out.
    """

    name: str
    apps: dict[str, App]
    paths: dict[str, str]
    project: str
    recipes: dict[str, Any] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    limits: Limits = field(default_factory=lambda: Limits(max_failures=2))
    mapped_files_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ticket:
    """The name of a ticket; `attempt` counts the attempts that have ended before."""

    key: str
    attempt: int
    walltime_s: int
    memory_mib: int
    cpus: int
    gpus: int

    @classmethod
    def of(cls, key: str, attempt: int, request: Request) -> Ticket:
        """Return the ticket of an attempt."""
        walltime_s, memory_mib = request.walltime_s, request.memory_bytes / MIB
        return cls(
            key, attempt, math.ceil(walltime_s), math.ceil(memory_mib), request.cpus, request.gpus
        )

    @classmethod
    def from_name(cls, name: str) -> Ticket:
        """Return the ticket of a file or a run; ValueError for another file."""
        key, *numbers = name.partition("~")[0].split(".")
        attempt, walltime_s, memory_mib, cpus, gpus = map(int, numbers)
        return cls(key, attempt, walltime_s, memory_mib, cpus, gpus)

    @property
    def name(self) -> str:
        """Name of its file."""
        return ".".join(map(str, vars(self).values()))


@dataclass(frozen=True)
class Pool:
    """A pool, opened with `open_pool` or made with `make_pool`."""

    folder: Path
    settings: PoolSettings

    @property
    def runs(self) -> Path:
        """Folder of the runs on record."""
        return self.folder / "runs"

    @property
    def workers(self) -> Path:
        """Folder of the workers' files."""
        return self.folder / "workers"

    @property
    def events(self) -> Path:
        """The record of the fate of the cells."""
        return self.folder / EVENTS_FILE

    def place(self, kind: str, name: str) -> Path:
        """Return the path of a ticket or run in one of the folders."""
        return self.folder / kind / name

    def names(self, kind: str) -> list[str]:
        """Return the names in a folder of tickets or runs."""
        with os.scandir(self.folder / kind) as entries:
            # A file that is open on NFS leaves `.nfs…` when it is removed.
            return [entry.name for entry in entries if not entry.name.startswith(".")]

    def cells(self) -> dict[str, PoolCell]:
        """Return all cells by key, without parts.

        Raises
        ------
        RunError
            If a list of cells is damaged.
        """
        cells: dict[str, PoolCell] = {}
        for path in sorted((self.folder / "cells").glob("[!.]*.jsonl")):
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
                listed = [of_fields(PoolCell, json.loads(line)) for line in lines]
            except ValueError as error:
                problem = f"a damaged list of cells ({error})"
                raise RunError(problem, path, "make the pool again") from None
            cells |= {cell.key: cell for cell in listed}
        return cells

    def list_cells(self, cells: Iterable[PoolCell]) -> None:
        """Add a list of cells; for the process that follows the pool."""
        number = len(list((self.folder / "cells").glob("[!.]*.jsonl"))) + 1
        path = self.folder / "cells" / f"{number:04}.jsonl"
        with atomic_path(path) as partial, partial.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{json.dumps(as_fields(cell))}\n" for cell in cells)

    def put(self, cell: PoolCell, attempt: int, request: Request) -> None:
        """Let a cell wait for a worker; for the process that follows the pool."""
        content = json.dumps({"cell": as_fields(cell), "request": as_fields(request)})
        partial = self.place(PARTIAL, f".{cell.key}")
        partial.write_text(content, encoding="utf-8")
        partial.rename(self.place(TODO, Ticket.of(cell.key, attempt, request).name))

    def read(self, path: Path) -> tuple[PoolCell, Request] | None:
        """Return the cell and the request of a ticket; None if it has gone.

        A ticket that a crashed machine left empty is removed, as the follower makes it again.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return of_fields(PoolCell, fields["cell"]), of_fields(Request, fields["request"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            path.unlink(missing_ok=True)
            return None

    def draw(self, ticket: str, holder: str) -> str:
        """Take a ticket; return the name of the run, or an empty text if another worker did."""
        name = f"{ticket}~{holder}"
        return name if self._moved(self.place(TODO, ticket), self.place(HELD, name)) else ""

    def give_back(self, run: str) -> None:
        """Let the cell of a run wait again."""
        self._moved(self.place(HELD, run), self.place(TODO, run.partition("~")[0]))

    def end(self, run: str) -> None:
        """Leave a run that has ended to the follower."""
        sync_folder(self.place(PARTIAL, run))
        self.place(PARTIAL, run).rename(self.place(ENDED, run))
        self.place(HELD, run).unlink(missing_ok=True)

    def check_writable(self) -> None:
        """Check that a worker may write here.

        Raises
        ------
        RunError
            If it may not.
        """
        for kind in (TODO, HELD, PARTIAL, ENDED, "workers"):
            path = self.folder / kind
            if not os.access(path, os.W_OK | os.X_OK):
                raise RunError("cannot be written to", path, "a worker needs to write there")

    @staticmethod
    def _moved(source: Path, target: Path) -> bool:
        try:
            source.rename(target)
        except FileNotFoundError:
            # NFS repeats a request whose answer was lost, and then fails though it had succeeded.
            return target.exists()
        return True


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
    versions = {"format": FORMAT, "voxcast_version": voxcast.__version__}
    write_json(folder / POOL_FILE, versions | as_fields(settings))
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
        If the folder holds none, or one of another version.
    """
    path, made_by, here = folder / POOL_FILE, "", voxcast.__version__
    try:
        content = read_json(path)
        version, made_by = content.pop("format"), content.pop("voxcast_version", "")
        if version != FORMAT:
            release = f", made by voxcast {made_by}" if made_by else ""
            problem = f"a pool of format {version}{release}; voxcast {here} reads {FORMAT}"
            then = "work on it with the version of voxcast that made it, or make it again"
            raise RunError(problem, folder, then)
        return Pool(folder, of_fields(PoolSettings, content))
    except FileNotFoundError:
        then = "`voxcast campaign run NAME --cluster CLUSTER` makes one"
        raise RunError(f"not a pool: it has no {POOL_FILE}", folder, then) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if made_by not in ("", here):
            problem = f"made by voxcast {made_by}, which voxcast {here} cannot read ({error})"
            raise RunError(problem, path, "work on it with that version") from None
        raise RunError(f"is damaged ({error!r})", path, "make it again") from None
