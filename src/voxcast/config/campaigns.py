"""The settings of campaigns, from ``params.yaml`` or composed from ``conf/campaign/NAME.yaml``.

The configuration by which an application is learned on a user's images, and its campaign.

It is the composition that the project uses, with the changes that `dvc exp run -S` would take.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.checks import check_startable
from voxcast.config.load import CONF_DIR, PARAMS_FILE, check_option, compose, load, load_app
from voxcast.config.schema import Config
from voxcast.errors import ConfigError
from voxcast.files import atomic_path, sha256_of
from voxcast.measure.campaign import Campaign, Remaining, remaining
from voxcast.measure.plan import CampaignPlan, CampaignSettings, make_plan
from voxcast.measure.trace import Conditions
from voxcast.project import HISTORY
from voxcast.quantities import format_seconds
from voxcast.records import as_fields

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.images.sources import ImageSelection


CAMPAIGNS = Path("data/campaigns")


def project_campaign(name: str, overrides: Sequence[str] = ()) -> Campaign:
    """Return the campaign ``name`` of the project in the current folder.

    Parameters
    ----------
    overrides : sequence of str
        Changes to the configuration, ``KEY=VALUE``.

    Raises
    ------
    ConfigError
        If the campaign is unknown, or it consists of recorded runs.
    """
    config = _composed(name, overrides)
    folder = CAMPAIGNS / name
    return Campaign(
        name=name,
        settings=campaign_settings(config, folder / "runs"),
        images=config.images,
        coarse_points=config.features.coarse_points,
        network_points=config.features.network_points,
        max_voxels=config.features.max_voxels,
        folder=folder,
        history=HISTORY / name,
        definition_sha256=sha256_of(config.definition()),
    )


def _composed(name: str, overrides: Sequence[str]) -> Config:
    check_option(Path(CONF_DIR, "campaign"), name, "campaign")
    with tempfile.TemporaryDirectory() as folder:
        composed = Path(folder) / PARAMS_FILE
        compose(composed, [f"campaign={name}", *overrides])
        changes = " ".join([f"campaign={name}", *overrides])
        config = load(composed, label=f"{CONF_DIR} with {changes}")
    if config.campaign.history:
        raise ConfigError("is a recorded campaign: there is nothing to measure", name)
    return config


def campaign_settings(config: Config, runs: Path, device: str | None = None) -> CampaignSettings:
    """Return the settings of the campaign in ``config``, of all devices or of one.

    Parameters
    ----------
    runs : Path
        Folder for the runs.
    """
    campaign = config.campaign
    return CampaignSettings(
        apps=config.apps,
        runs=runs,
        sweeps=tuple(campaign.sweeps.values()),
        configurations=tuple(config.configurations(device)),
        conditions=Conditions(
            campaign.time_limit_s, campaign.stall_s, metronome=campaign.metronome
        ),
        seed=campaign.seed,
        anchors=campaign.anchors,
        stop_after_s=campaign.budget_s,
        parallel=campaign.parallel,
    )


CAMPAIGN = "learn"
# A run is stopped after this time at least, however short the time for all of them: a run that was
# stopped is a lower bound and no label.
MIN_TIME_LIMIT_S = 3600.0


@dataclass(frozen=True)
class LearningRequest:
    """A request to learn an application.

    Attributes
    ----------
    app : str
        Name of the application.
    images : ImageSelection, optional
        The images; by default as in the present configuration.
    budget_s : float
        Time for measuring.
    cpus : tuple of int
        Numbers of CPUs to try; as in ``conf/device`` if empty.
    history : tuple of str
        Batches of recorded runs to learn from too.
    recorded : tuple of str
        Folders with runs that take the place of measured ones; nothing is measured then.
    changes : tuple of str
        Other changes, ``KEY=VALUE``, which take precedence.
    """

    app: str
    images: ImageSelection | None = None
    budget_s: float = 3600.0
    cpus: tuple[int, ...] = ()
    history: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def overrides(self, params: Path) -> list[str]:
        """Return the changes to ``conf/`` as composed.

        Parameters
        ----------
        params : Path
            The present configuration, whose images are used if none are named. Otherwise it is
            not read: it may not fit this release.

        Raises
        ------
        ConfigError
            If the application is unknown, or a value cannot be used.
        """
        app = load_app(Path(CONF_DIR, "app"), self.app)
        if app.input == "none":
            raise ConfigError("takes no image, so there is nothing to learn of images", app.name)
        if not self.budget_s > 0:
            raise ConfigError("must be above zero", "--time-budget")
        campaign = [
            f"campaign={CAMPAIGN}",
            f"campaign.budget_s={self.budget_s:.0f}",
            f"campaign.time_limit_s={max(self.budget_s, MIN_TIME_LIMIT_S):.0f}",
        ]
        if self.recorded:
            campaign = ["campaign=recorded", f"campaign.history={literal(self.recorded)}"]
        return [
            *self._image_overrides(params),
            f"app=[{self.app}]",
            *campaign,
            f"device=[{','.join(app.devices)}]",
            *(f"device.{name}.cpus={literal(self.cpus)}" for name in app.devices if self.cpus),
            f"features.history={literal(self.history)}",
            *self.changes,
        ]

    def _image_overrides(self, params: Path) -> list[str]:
        if self.images is not None:
            values: dict[str, Any] = {
                "path": str(self.images.folder),
                "participants": self.images.participants,
            }
            return ["images=bids", *_keys("images", values)]
        values = as_fields(load(params).images)
        return [f"images={values.pop('kind')}", *_keys("images", values)]


def compose_request(request: LearningRequest, present: Path, out: Path) -> Config:
    """Compose ``conf/`` for a request, check it, and write it atomically.

    Parameters
    ----------
    present, out : Path
        The present ``params.yaml``, and the one to write, which may be the same.
    """
    overrides = request.overrides(present)
    with atomic_path(out) as partial:
        compose(partial, overrides)
        return load(partial, label=f"{CONF_DIR} as changed for {request.app}")


def literal(value: Any) -> str:
    """Return a plain value in the grammar of Hydra's overrides.

    Raises
    ------
    ConfigError
        For a text that would be read as a reference to a key.

    Examples
    --------
    >>> literal(["a/b c", 1, None, True, {"shape": (1, 2)}])
    "['a/b c',1,null,true,{shape:[1,2]}]"
    """
    if isinstance(value, str):
        if "${" in value:
            raise ConfigError("holds ${, which stands for another key", value, "rename it")
        from hydra.core.override_parser.types import Quote, QuotedString

        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{literal(entry)}" for name, entry in value.items()) + "}"
    return json.dumps(value)


def _keys(group: str, values: dict[str, Any]) -> list[str]:
    return [f"{group}.{name}={literal(value)}" for name, value in values.items()]


@dataclass(frozen=True)
class DeviceOutlook:
    """The settings, the plan and the outlook of one device."""

    device: str
    settings: CampaignSettings
    plan: CampaignPlan
    outlook: Remaining


def device_outlooks(config: Config, catalogue: pd.DataFrame, runs: Path) -> list[DeviceOutlook]:
    """Return the outlook of every configured device; none where recorded runs are used.

    Parameters
    ----------
    catalogue : DataFrame
        The catalogue of the image set.
    runs : Path
        Folder with a folder of runs for each device.
    """
    if config.campaign.history:
        return []
    devices = []
    for device in config.devices:
        settings = campaign_settings(config, runs / device, device)
        plan = make_plan(settings, catalogue)
        devices.append(DeviceOutlook(device, settings, plan, remaining(settings, plan)))
    return devices


def check_measurable(devices: list[DeviceOutlook], budget_s: float | None) -> None:
    """Check that at least one run can be measured in the time, or is on record.

    Raises
    ------
    ConfigError
        If no configuration fits this machine, or the shortest run would take longer than
        ``budget_s``.
    RunError
        If the program or the container of an application is missing.
    """
    if not any(entry.outlook.total for entry in devices):
        notes = [note for entry in devices for note in entry.plan.notes]
        raise ConfigError("there is nothing to measure here", "--cpus", "; ".join(notes) or None)
    for entry in devices:
        if entry.outlook.left:
            for cell in {(c.app, c.configuration): c for c in entry.plan.cells.values()}.values():
                check_startable(entry.settings.apps[cell.app], cell.configuration)
    if any(entry.outlook.left < entry.outlook.total for entry in devices):
        return
    if not all(entry.outlook.trusted for entry in devices):
        return  # the smallest image is measured first
    shortest_s = min(entry.outlook.shortest_s for entry in devices if entry.outlook.left)
    if budget_s is not None and shortest_s > budget_s:
        hours = math.ceil(10 * shortest_s / 3600) / 10
        raise ConfigError(
            f"the shortest run is expected to take {format_seconds(shortest_s)}",
            "--time-budget",
            f"give at least --time-budget {hours:g}h",
        )
