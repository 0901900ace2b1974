"""The campaigns of a project: their images and plans, their progress, their recorded history.

A named campaign has its images, catalogue and runs in ``data/campaigns/NAME``, separate from those
of the project, and its recorded history in ``data/history/NAME``. The campaign of the stages
measures one device after the other, see `profile_device`; `measure_host` makes the local runs that
show the speed of a machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.checks import check_startable
from voxcast.errors import ConfigError, VoxcastError, one_line
from voxcast.files import atomic_path
from voxcast.images.catalogue import (
    CATALOGUE,
    RECORDED_IMAGES,
    check_recorded,
    recorded_images,
)
from voxcast.images.image_set import prepare_image_set, recipes_in
from voxcast.images.network_volume import copy_small_volumes
from voxcast.images.sources import ImageChoice
from voxcast.images.summary import Grids
from voxcast.measure.host import HostFacts, host_facts
from voxcast.measure.local import (
    Progress,
    TimeLeft,
    kind_of,
    missing_cells,
    run_campaign,
)
from voxcast.measure.plan import (
    MANY,
    CampaignPlan,
    CampaignSettings,
    completed,
    expected_times,
    good_volumes,
    lend_cells,
    make_plan,
)
from voxcast.measure.record import base_of, last_line
from voxcast.measure.trace import Conditions
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, App, Cell, Configuration, Run
from voxcast.runs.series import runs_in, write_tables_of
from voxcast.runs.store import collect, load_history, recorded_cell_keys
from voxcast.runs.table import ALLOCATION, TASK

if TYPE_CHECKING:
    import pandas as pd


MAX_SMALLEST = 3
KIND = ["app", "scale", "device", "cpus"]  # see `kind_of`

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Campaign:
    """A campaign of the project in the current folder.

    Attributes
    ----------
    settings : CampaignSettings
        Its runs are in `folder`.
    images : ImageChoice
        Its image set.
    coarse_points, network_points : int
        Grids of `voxcast.images.volume`.
    max_voxels : int
        A volume with more is left out.
    folder, history : Path
        Of images, catalogue and runs; of the recorded runs.
    definition_sha256 : str
        Hash of the configuration, for the provenance of the recorded runs.
    """

    name: str
    settings: CampaignSettings
    images: ImageChoice
    coarse_points: int
    network_points: int
    max_voxels: int
    folder: Path
    history: Path
    definition_sha256: str

    def prepare(self) -> None:
        """Make or list the volumes and catalogue them, unless all of it is up to date."""
        images, catalogue = self.folder / "images", self.folder / "catalogue"
        grids = Grids(self.coarse_points, self.network_points)
        files = prepare_image_set(self.images, images, catalogue, grids, self.max_voxels)
        recorded = self.history / RECORDED_IMAGES
        if self.images.generated and recorded.is_file():
            check_recorded(catalogue, recorded)
        else:  # a user may have added images since
            table = recorded_images(catalogue, images if self.images.generated else None)
            with atomic_path(recorded) as partial:
                table.to_parquet(partial, index=False)
            copy_small_volumes(catalogue, self.history, set(table["volume_id"]))
        logger.info("%d volumes, %s", len(files), catalogue / CATALOGUE)

    def volumes(self) -> pd.DataFrame | None:
        """Return the catalogue of the images or, before they are prepared, of the recorded runs.

        None if there is neither. The recorded one has no paths: its files may be elsewhere.
        """
        import pandas as pd

        catalogue = self.folder / "catalogue" / CATALOGUE
        if catalogue.is_file():
            return pd.read_parquet(catalogue)
        if (self.history / RECORDED_IMAGES).is_file():
            return pd.read_parquet(self.history / RECORDED_IMAGES).assign(path="", problem=None)
        return None

    def volume_rows(self) -> dict[str, dict[str, Any]]:
        """Return headers and characteristics by volume id."""
        rows = self._known_volumes().drop_duplicates("volume_id").to_dict("records")
        return {str(row["volume_id"]): {str(k): v for k, v in row.items()} for row in rows}

    def plan(self, host: HostFacts | None = None) -> CampaignPlan:
        """Plan the campaign for this machine, or for another.

        Raises
        ------
        ConfigError
            If its images have not been prepared, and none of its runs is recorded.
        """
        volumes = self._known_volumes()
        settings = dataclasses.replace(self.settings, host=host or self.settings.host)
        return make_plan(settings, volumes, recipes_in(self.folder / "images"))

    def _known_volumes(self) -> pd.DataFrame:
        if (volumes := self.volumes()) is None:
            then = f"`voxcast measure --campaign {self.name}` prepares them and measures"
            raise ConfigError(
                "its images are not prepared, and no runs are on record", self.name, then
            )
        return volumes

    def lend(self, path: Path) -> int:
        """Write the cells that another machine is to measure to ``path``; return their number.

        It may have GPUs and cores that this one lacks, and decides there which cells fit.
        """
        self.prepare()
        plan = self.plan(HostFacts("", MANY, MANY**2, ("any",) * 16, "", ""))
        cells = [*plan.cells.values()]
        lend_cells(path, cells, self.settings.apps, plan.paths, plan.recipes)
        return len(cells)

    def run(self) -> Progress:
        """Prepare the images and measure until all is done or the time is up.

        Runs are collected into the history at the start and at the end.
        """
        start = time.monotonic()
        self.prepare()
        plan, settings = self.plan(), self.settings
        for note in plan.notes:
            logger.info(note)
        if settings.stop_after_s is not None:
            left_s = settings.stop_after_s - (time.monotonic() - start)  # preparing took the rest
            settings = dataclasses.replace(settings, stop_after_s=left_s)
        self.collect()
        try:
            return run_campaign(settings, plan, recorded=self.recorded(plan))
        finally:
            self.collect()

    def status(self, *, any_host: bool = False) -> list[dict[str, Any]]:
        """Return the progress by application, scale and allocation, see `overview`.

        Empty if the images are not prepared, and none of its runs is recorded.
        """
        if self.volumes() is None:
            return []
        plan = self.plan()
        limit_s = self.settings.conditions.time_limit_s
        elsewhere = self.recorded(plan, any_host=any_host)
        return overview(plan, runs_in(self.settings.runs), limit_s, elsewhere)

    def collect(self, runs: Path | None = None) -> list[Path]:
        """Put new runs, by default of this machine, into parts of the history; return these."""
        return collect(
            runs or self.settings.runs, self.history,
            campaign=self.name, campaign_sha256=self.definition_sha256,
        )  # fmt: skip

    def recorded(self, plan: CampaignPlan, *, any_host: bool = False) -> dict[str, Run]:
        """Return the runs of the history by key, see `runs_elsewhere`."""
        if not self.history.is_dir() or not recorded_cell_keys(self.history):
            return {}
        return runs_elsewhere(plan.cells, load_history([self.history]), any_host=any_host)


def profile_device(
    device: str, settings: CampaignSettings, plan: CampaignPlan, tables: Path
) -> pd.DataFrame:
    """Make the missing runs of the campaign on ``device`` and write the tables of all its runs.

    Where nothing can be measured the tables are empty, and the notes in the first say why. The
    folders of the runs are kept apart from the tables, which are the outputs of a stage: DVC
    replaces those before each experiment.

    Parameters
    ----------
    device : str
        Name of the device.
    settings, plan : CampaignSettings, CampaignPlan
        Of this device alone.
    tables : Path
        Folder of the tables.

    Returns
    -------
    DataFrame
        The table of runs.
    """
    notes = list(plan.notes)
    if not settings.configurations:
        notes.append(
            f"{device}: the configuration does not name it; to measure on this device set "
            f"-S 'device=[cpu,{device}]', or add it to `devices` of your application"
        )
    elif not any(device in app.devices for app in settings.apps.values()):
        notes.append(f"{device}: no application of this campaign can use it")
    for note in notes:
        logger.info(note)
    progress = run_campaign(settings, plan)
    if progress.left:
        notes.append(
            f"{device}: stopped at its budget with {progress.left} runs left, about "
            f"{format_seconds(progress.left_s)}; continue with dvc repro -f -s profile@{device}"
        )
        logger.warning(notes[-1])
    return write_tables_of(settings.runs, tables, notes, runs_left=progress.left)


def measure_smallest(settings: CampaignSettings, plan: CampaignPlan) -> Run | None:
    """Measure and record the run of ``plan`` with the smallest image, if it is not on record.

    It gives the order of magnitude of an application that was never measured. If it fails, its
    image may be the reason: the next smallest is tried, up to `MAX_SMALLEST` of them. Images that
    failed before come last.

    Returns
    -------
    Run or None
        The last run; None if the plan is empty.
    """
    runs, run = runs_in(settings.runs), None
    failed = {c.volume_id for k, c in plan.cells.items()
              if k in runs and runs[k].outcome == "failed"}  # fmt: skip
    ordered = sorted(
        plan.cells.items(),
        key=lambda entry: (
            entry[1].volume_id in failed,
            plan.expected_s.get((entry[1].app, entry[1].volume_id), 1.0),
        ),
    )
    by_volume: dict[str, tuple[str, Cell]] = {}
    for key, cell in ordered:
        by_volume.setdefault(cell.volume_id, (key, cell))
    settings = dataclasses.replace(settings, stop_after_s=None)
    for key, cell in list(by_volume.values())[:MAX_SMALLEST]:
        run_campaign(settings, dataclasses.replace(plan, cells={key: cell}, local_runs=[]))
        run = runs_in(settings.runs).get(key)
        if run is None or run.outcome != "failed":
            break
    return run


def runs_elsewhere(
    cells: Mapping[str, Cell], history: pd.DataFrame, *, any_host: bool = False
) -> dict[str, Run]:
    """Return the runs of a recorded history by cell key, to resume on another machine.

    With ``any_host`` a run on other hardware counts too.
    """
    values = history.astype(object).where(history.notna(), None)
    names = [str(name) for name in history.columns]
    runs = [Run(**dict(zip(names, row, strict=True))) for row in values.to_numpy()]
    by_key = {run.cell_key: run for run in runs}
    if any_host:
        alike = {_but_machine(run): run for run in runs}
        for key, cell in cells.items():
            equal_run = alike.get(_but_machine(base_of(cell)))
            if equal_run is not None and key not in by_key:
                by_key[key] = equal_run
    return by_key


def _but_machine(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in (*TASK, *ALLOCATION, "repeat"))


def outlook(
    plan: CampaignPlan,
    here: Mapping[str, Run],
    time_limit_s: float | None = None,
    elsewhere: Mapping[str, Run] | None = None,
) -> pd.DataFrame:
    """Return one row for each cell of a plan, by key.

    The arguments are as in `missing_cells`; the columns ``kind``, see `kind_of`; ``outcome`` and
    ``noisy`` of the run on record; ``left``, whether it is to be made; ``expected_s``.
    """
    import pandas as pd

    missing = missing_cells(plan.cells, here, time_limit_s, elsewhere)
    runs, times = {**(elsewhere or {}), **here}, TimeLeft(plan.cells, plan.expected_s)
    for key in plan.cells.keys() - missing.keys():
        times.finish(key, runs[key].runtime_s or 0.0)
    rows = [
        (
            kind_of(cell),
            runs[key].outcome if key in runs else None,
            key in runs and runs[key].noisy,
            key in missing,
            times.cell_s(cell),
        )
        for key, cell in plan.cells.items()
    ]
    columns = ["kind", "outcome", "noisy", "left", "expected_s"]
    table = pd.DataFrame(rows, index=list(plan.cells), columns=columns)
    return table.astype({"noisy": bool, "left": bool, "expected_s": float})  # of no cells, too


def overview(
    plan: CampaignPlan,
    here: Mapping[str, Run],
    time_limit_s: float | None = None,
    elsewhere: Mapping[str, Run] | None = None,
) -> list[dict[str, Any]]:
    """Return one row for each application, scale and allocation of a campaign.

    The arguments are as in `missing_cells`.

    Returns
    -------
    list of dict
        ``app``, ``scale``, ``device``, ``cpus``; ``done`` and ``left``, planned runs; ``left_s``;
        ``local_runs``, on record beside the planned ones; ``outcomes``, ``noisy``.
    """
    local_runs = Counter(
        (run.app, run.scale, run.device, run.cpus)
        for run in {**(elsewhere or {}), **here}.values()
        if run.repeat >= ANCHOR_REPEAT
    )
    rows = []
    kind: Any
    for kind, table in outlook(plan, here, time_limit_s, elsewhere).groupby("kind"):
        left = table["left"]
        rows.append({
            **dict(zip(KIND, kind, strict=True)),
            "done": int((~left).sum()),
            "left": int(left.sum()),
            "left_s": float(table["expected_s"][left].sum()),
            "local_runs": local_runs[kind],
            "outcomes": table["outcome"].value_counts().to_dict(),
            "noisy": int((table["noisy"] & ~left).sum()),
        })  # fmt: skip
    return rows


@dataclass(frozen=True)
class Remaining:
    """The planned runs that a campaign would make now, and how long they take.

    Attributes
    ----------
    total, left : int
        Runs of the plan; runs that are not on record, or are tried again.
    left_s, shortest_s : float
        Expected seconds of the runs left, and of the shortest of them; 0 if none is left.
    failed, failed_s : int, float
        Of the runs left, how many failed before; their expected seconds.
    trusted : bool
        Whether the times are based on a run on record, or stated by the application.
    """

    total: int
    left: int
    left_s: float
    shortest_s: float
    failed: int
    failed_s: float
    trusted: bool


def remaining(settings: CampaignSettings, plan: CampaignPlan) -> Remaining:
    """Return the runs of ``plan`` without a record in the folder of its runs."""
    table = outlook(plan, runs_in(settings.runs), settings.conditions.time_limit_s)
    left = table[table["left"]]
    failed_s = left["expected_s"][left["outcome"] == "failed"]
    defaults = App.expected_startup_s, App.expected_s_per_mvoxel
    stated = all(
        (app.expected_startup_s, app.expected_s_per_mvoxel) != defaults
        for app in settings.apps.values()
    )
    return Remaining(
        total=len(plan.cells),
        left=len(left),
        left_s=float(left["expected_s"].sum()),
        shortest_s=float(left["expected_s"].min()) if len(left) else 0.0,
        failed=len(failed_s),
        failed_s=float(failed_s.sum()),
        trusted=len(left) < len(plan.cells) or stated,
    )


def failed_images(folder: Path, plan: CampaignPlan) -> list[dict[str, Any]]:
    """Return the images with failed runs of ``plan`` in ``folder``, in the order of their runs.

    Returns
    -------
    list of dict
        ``app``, ``subject``, ``image``; ``runs``, the number that failed; ``cause`` and ``log``
        of the last of them.
    """
    runs = runs_in(folder)
    failed: dict[tuple[str, str], dict[str, Any]] = {}
    for key, cell in plan.cells.items():
        if key in runs and runs[key].outcome == "failed":
            entry = failed.setdefault((cell.app, cell.volume_id), {
                "app": cell.app, "subject": cell.subject,
                "image": str(plan.paths.get(cell.volume_id, "")), "runs": 0,
            })  # fmt: skip
            causes = last_line(folder / key), f"exit status {runs[key].exit_status}"
            entry["runs"] += 1
            entry |= {"cause": ", ".join(filter(None, causes)), "log": str(folder / key)}
    return [*failed.values()]


# Local runs of ``voxcast measure --host``: a few small volumes and applications, in rounds. An
# interrupted round continues; a complete one is followed by the next.
HOST_FOLDER = Path("data/campaigns/host")  # of the project
HOST_VOLUMES = 4
HOST_CONDITIONS = Conditions(time_limit_s=600.0, stall_s=300.0)


def measure_host(
    apps: Mapping[str, App],
    images: ImageChoice,
    stop_after_s: float,
    grids: Grids,
    max_voxels: int,
) -> Progress:
    """Make the local runs of this round that are missing, or of the next, in the current project.

    Their volumes are the smallest of the project whose files are here, or else of ``images``.

    Parameters
    ----------
    apps : mapping
        Applications by name, with the parameters to run; an application that cannot be started
        here is left out with a warning.
    images : ImageChoice
        Generated if the project has too few volumes here.
    stop_after_s : float
        No run is started that is not expected to end within this time.
    grids : Grids
        Of the characteristics and of the network.
    max_voxels : int
        A larger volume is left out.

    Raises
    ------
    ConfigError
        If no application can be started.
    RunError
        See `run_campaign`.
    """
    configuration, startable = Configuration("cpu", 1), {}
    for name, app in apps.items():
        try:
            check_startable(app, configuration)
            startable[name] = app
        except VoxcastError as error:
            logger.warning("%s is left out: %s", name, one_line(error))
    if not startable:
        raise ConfigError("no application of the model can be started here", "host measure")
    catalogue = _host_catalogue(images, grids, max_voxels)
    volumes = good_volumes(catalogue)
    smallest = volumes.sort_values(["mvoxels", "volume_id"])["subject"][:HOST_VOLUMES]
    recorded, facts = runs_in(HOST_FOLDER / "runs").keys(), host_facts()
    for number in itertools.count(1):
        drawn = (
            Cell(
                name, "", app.parameters, str(volume), subject, configuration, "full_scale",
                ANCHOR_REPEAT + number, "",
            )
            for volume, subject in smallest.items()
            for name, app in startable.items()
        )  # fmt: skip
        cells = completed(drawn, startable, facts)
        if not cells.keys() <= recorded:
            break
    files = catalogue.set_index("volume_id")["path"].astype(str)
    plan = CampaignPlan(
        cells,
        {str(volume): Path(files[volume]) for volume in smallest.index},
        expected_times(startable, volumes),
        recipes=recipes_in(HOST_FOLDER / "images"),
    )
    settings = CampaignSettings(
        startable, HOST_FOLDER / "runs", conditions=HOST_CONDITIONS, stop_after_s=stop_after_s
    )
    return run_campaign(settings, plan)


def _host_catalogue(choice: ImageChoice, grids: Grids, max_voxels: int) -> pd.DataFrame:
    import pandas as pd

    project_catalogue = Path("data/catalogue") / CATALOGUE
    if project_catalogue.is_file():
        catalogue = pd.read_parquet(project_catalogue)
        here = catalogue[[Path(path).is_file() for path in catalogue["path"]]]
        here = here[here["problem"].isna()]
        if here["volume_id"].nunique() >= HOST_VOLUMES:
            return here.drop_duplicates("volume_id")
    images, folder = HOST_FOLDER / "images", HOST_FOLDER / "catalogue"
    prepare_image_set(choice, images, folder, grids, max_voxels)
    return pd.read_parquet(folder / CATALOGUE).drop_duplicates("volume_id")
