"""Jobs of accounting joined with the images that they ran on, for ``voxcast learn --history``.

A laboratory that has run an application for years has measured it: the scheduler kept time and
memory of each job. Names and working directories of jobs tell application, subject and session.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.project import CONF_APP, HISTORY
from voxcast.quantities import counted
from voxcast.runs import csv_table, importer
from voxcast.runs.imported import patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from voxcast.runs.imported import Records

SUBJECT = r"(?P<subject>sub-[0-9A-Za-z]+(?:[_/]ses-[0-9A-Za-z]+)?)"
JOB, SUBJECT_COLUMN, SESSION = ("job", "job_id", "jobid", "name", "jobname"), "subject", "session"
MAX_REASONS = 8


COUNTS = ("read", "imported", "with_image", "duplicates")


@dataclass(frozen=True)
class Joined:
    """What became of the records of accounting, and where the runs are."""

    folder: str
    accounts: Sequence[importer.Account]
    read: int
    imported: int
    with_image: int
    duplicates: int

    def check(self, app: str) -> None:
        """Refuse accounting from which nothing can be learned.

        Raises
        ------
        TableError
            If no job is of the application, or none could be joined with an image.
        """
        if not self.imported and not self.duplicates:
            then = "name others by --pattern '(?P<app>…)', see `voxcast history import --help`"
            problem = f"no job of {app} among {counted(self.read, 'record')}"
            raise TableError(problem, self.folder, then)
        if self.imported and not self.with_image and not self.duplicates:
            reason = next(iter(self.reasons()), "")
            then = f"{reason}; name them by --pattern '(?P<subject>…)' or --map JOBS.csv"
            problem = f"none of {counted(self.imported, 'job')} could be joined with an image"
            raise TableError(problem, self.folder, then)

    def reasons(self) -> Counter[str]:
        """Return why jobs were not joined with an image, and how many."""
        reasons = Counter[str]()
        for account in self.accounts:
            reasons.update(account.without_image)
        return reasons

    def lines(self, app: str) -> Iterator[str]:
        """Yield how many jobs were joined with an image, and why others were not."""
        share = f" ({100 * self.with_image / self.imported:.0f} %)" if self.imported else ""
        on_record = f"; {self.duplicates} were on record" * bool(self.duplicates)
        yield (
            f"{'history':12} {counted(self.imported, 'new job')} of {app}, {self.with_image} "
            f"joined with an image{share}{on_record}"
        )
        for reason, count in self.reasons().most_common(MAX_REASONS):
            yield f"{'':12} not joined: {counted(count, 'job')}, {reason}"
        others, bad = (
            sum(len(getattr(account, name)) for account in self.accounts)
            for name in ("skipped", "bad")
        )
        if others or bad:
            yield (
                f"{'':12} left out: {others} of other applications or not ended, {bad} that "
                "cannot be used"
            )


def join_history(
    app: str,
    files: Sequence[Path],
    images: importer.RunImages,
    patterns: Sequence[str],
    job_map: Path | None,
    *,
    dry_run: bool = False,
) -> Joined:
    """Import the jobs of an application in the project of the current folder.

    Parameters
    ----------
    app : str
        Name of the application; it is described if it is not yet.
    files : sequence of Path
        Accounting or traces.
    images : RunImages
        Of a BIDS dataset, or a folder of NIfTI files.
    patterns : sequence of str
        Regular expressions with groups ``app`` and ``subject``; by default the name of the
        application, and BIDS labels.
    job_map : Path or None
        A CSV table with the subject of each job, or the column map of CSV files in YAML.
    dry_run : bool
        Only say how many jobs can be joined, and write nothing.

    Raises
    ------
    VoxcastError
        If a file cannot be read, or no job could be joined with an image.
    """
    if not dry_run:
        describe(app)
    named_by_user = patterns_of(patterns)
    named = patterns_of([_name_pattern(app)])["app"]
    by_label = patterns_of([SUBJECT])["subject"]
    subjects: dict[str, str] = {}
    columns = None
    if job_map is not None and job_map.suffix == ".csv":
        subjects = read_job_map(job_map)
    elif job_map is not None:
        columns = csv_table.load_map(job_map)

    def choose(records: Records) -> None:
        if columns is not None and "app" not in named_by_user:  # the table states the application
            records.keep(
                lambda row: bool(named.regex.search(row["app"])), "of another application"
            )
        for row, (name, _) in zip(records.rows, records.names, strict=True):
            row["app"] = app
            job = str(json.loads(row["labels_json"] or "{}").get("job_id", ""))
            row["subject"] = subjects.get(job) or subjects.get(name) or row["subject"]

    into = HISTORY / f"{app}_jobs"
    with tempfile.TemporaryDirectory() as scratch:
        accounts = [
            importer.import_files(
                "csv" if columns else importer.kind_of(path),
                [path],
                Path(scratch) / "jobs" if dry_run else into,
                None,
                columns,
                app_pattern=named_by_user.get("app") or (None if columns else named),
                subject_pattern=named_by_user.get("subject") or (None if columns else by_label),
                images=images,
                choose=choose,
            )
            for path in files
        ]
    joined = Joined(
        str(into), accounts,
        *(sum(getattr(account, name) for account in accounts) for name in COUNTS),
    )  # fmt: skip
    joined.check(app)
    return joined


def describe(app: str) -> None:
    """Write ``conf/app/APP.yaml`` if it is missing: from a template, or of its name alone."""
    from voxcast.apps.checks import UNKNOWN_VERSION
    from voxcast.apps.new import check_name, load_template, template_names, write_app

    path = CONF_APP / f"{app}.yaml"
    if path.is_file():
        return
    check_name(app)
    comments = ["Learned from accounting. Check the command line before you submit jobs."]
    values = {"argv": [app, "{image}", "{out}"]}
    if (name := app.replace("_", "-")) in template_names():
        template = load_template(name)
        values = template.values(in_container=False)
        comments += template.comments
    write_app(path, app, {"version": UNKNOWN_VERSION, **values}, comments)
    print(f"{'application':12} {path} was written; check its command line before you submit jobs",
          file=sys.stderr)  # fmt: skip


def read_job_map(path: Path) -> dict[str, str]:
    """Return the subject, with its session, by number or name of the job.

    Raises
    ------
    TableError
        If it cannot be read, or has no columns for a job and a subject.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeError, csv.Error) as error:
        raise TableError(f"cannot be read ({error})", path) from None
    names = {name.lower(): name for name in rows[0]} if rows else {}
    job = next((names[name] for name in JOB if name in names), None)
    if job is None or SUBJECT_COLUMN not in names:
        then = "its first line names the columns job, subject and, if there are any, session"
        raise TableError("has no column of jobs, or of subjects", path, then)
    return {str(row[job]): _labelled(row, names) for row in rows if row[names[SUBJECT_COLUMN]]}


def _labelled(row: Mapping[str, str], names: Mapping[str, str]) -> str:
    subject = f"sub-{row[names[SUBJECT_COLUMN]].removeprefix('sub-')}"
    session = row[names[SESSION]] if SESSION in names else ""
    return f"{subject}_ses-{session.removeprefix('ses-')}" if session else subject


def _name_pattern(app: str) -> str:
    """Return a pattern of the name, in which separators and case do not count.

    Examples
    --------
    >>> bool(re.search(_name_pattern("recon_all"), "Recon-All_sub-01"))
    True
    """
    words = [re.escape(word) for word in re.split(r"[_\W]+", app) if word]
    return f"(?i)(?P<app>{'[-_. ]?'.join(words)})"
