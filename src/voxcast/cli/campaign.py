"""``voxcast campaign run|status|collect NAME``: measure a campaign in sittings, and record it.

Images, catalogue and runs of a campaign lie in ``data/campaigns/NAME``, apart from those of the
project; what is recorded for good is collected in ``data/history/NAME``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.arguments import add_project_argument
from voxcast.errors import ConfigError
from voxcast.files import sha256_of
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from voxcast.campaigns.plan import CampaignPlan
    from voxcast.config import Config

COLLECT_EVERY_S = 1200.0


def main(argv: list[str]) -> int:
    """Run, show or collect a campaign."""
    parser = argparse.ArgumentParser(
        prog="voxcast campaign", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=("run", "status", "collect"))
    parser.add_argument("name", metavar="NAME", help="a file of conf/campaign, without .yaml")
    parser.add_argument(
        "--hours", type=float, help="run: begin no run that would not end in so many hours"
    )
    parser.add_argument("--parallel", type=int, help="run: so many at a time, on cores apart")
    parser.add_argument(
        "--any-host",
        action="store_true",
        help="runs recorded on other hardware count too: they are not measured again here",
    )
    parser.add_argument(
        "-S", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="change the configuration, as with dvc exp run -S",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    os.chdir(project.require(args.project))  # all paths of a project begin there
    campaign = Campaign(args.name, args.overrides)
    if args.action == "run":
        return campaign.run(args.hours, args.parallel, args.any_host, args.json)
    if args.action == "status":
        return campaign.status(args.any_host, args.json)
    made = campaign.collect()
    print(json.dumps(made) if args.json else "\n".join(made) or "nothing new")
    return 0


class Campaign:
    """A campaign of the project we are in."""

    def __init__(self, name: str, overrides: list[str]) -> None:
        from voxcast import config

        campaigns = config.options(Path(config.CONF_DIR, "campaign"))
        if name not in campaigns:
            raise ConfigError("unknown campaign", name, f"known are: {', '.join(campaigns)}")
        with tempfile.TemporaryDirectory() as folder:
            composed = Path(folder) / config.PARAMS_FILE
            config.compose(composed, [f"campaign={name}", *overrides])
            self._config: Config = config.load(composed)
        if self._config.campaign.history:
            raise ConfigError("is a recorded campaign: there is nothing to measure", name)
        self._name = name
        self._folder = Path("data/campaigns") / name
        self._runs = self._folder / "runs"
        self._images = self._folder / "images"
        self._catalogue = self._folder / "catalogue"
        self._batch = Path("data/history") / name

    def run(self, hours: float | None, parallel: int | None, any_host: bool, as_json: bool) -> int:
        """Measure until all is done or the time is up; collect now and then."""
        begun = time.monotonic()
        # A batch system ends a job by SIGTERM, a terminal by SIGHUP: then too it is collected.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        from voxcast.campaigns.driver import run_campaign
        from voxcast.campaigns.recorder import Conditions
        from voxcast.images.participants import PARTICIPANTS, recipe_of

        campaign = self._config.campaign
        self.make_images()
        plan = self._plan()
        for note in plan.notes:
            print(f"voxcast: {note}", file=sys.stderr)
        if (limit_s := campaign.stop_after_s if hours is None else hours * 3600) is not None:
            limit_s -= time.monotonic() - begun  # images were made in it
        self.collect()
        collected = time.monotonic()

        def on_record(_run: Path) -> None:
            nonlocal collected
            if time.monotonic() - collected > COLLECT_EVERY_S:
                self.collect()
                collected = time.monotonic()

        generated = (self._images / PARTICIPANTS).is_file()
        try:
            progress = run_campaign(
                plan.cells,
                plan.paths,
                self._runs,
                apps=self._config.apps,
                conditions=Conditions(campaign.time_limit_s, campaign.stall_s),
                recipes=recipe_of(self._images) if generated else {},
                expected_s=plan.expected_s,
                anchors=plan.anchors,
                elsewhere=self._recorded(plan, any_host),
                stop_after_s=limit_s,
                parallel=campaign.parallel if parallel is None else parallel,
                on_record=on_record,
            )
        finally:
            self.collect()
        if as_json:
            print(json.dumps({"runs": len(progress.runs), "left": progress.left}))
        else:
            print(f"{self._name}: {len(progress.runs)} runs measured, {progress.left} left")
        if progress.left:
            again = f"voxcast campaign run {self._name}"
            again += "" if hours is None else f" --hours {hours:g}"
            left = format_seconds(progress.left_s)
            print(f"voxcast: about {left} left; go on by `{again}`", file=sys.stderr)
        return 0

    def status(self, any_host: bool, as_json: bool) -> int:
        """Show how far it is."""
        from voxcast.campaigns.overview import overview
        from voxcast.history.run_folders import record_rows

        plan = self._plan()
        known = {**self._recorded(plan, any_host), **record_rows(self._runs)}
        rows = overview(plan.cells, plan.expected_s, known)
        if as_json:
            print(json.dumps(rows, indent=2))
            return 0
        done, left = (sum(row[name] for row in rows) for name in ("done", "left"))
        left_s = sum(row["left_s"] for row in rows)
        print(f"{self._name}: {done} runs done, {left} left, about {format_seconds(left_s)}")
        print(_line("app", "scale", "CPUs", "done", "left", "time left", "noisy", "CV wall",
                    "CV CPU", "other outcomes"))  # fmt: skip
        for row in rows:
            others = {k: v for k, v in row["outcomes"].items() if k != "completed"}
            said = ", ".join(f"{n} {outcome}" for outcome, n in sorted(others.items()))
            times = format_seconds(row["left_s"])
            noise = (_percent(row[name]) for name in ("cv_runtime", "cv_cpu"))
            print(_line(row["app"], row["scale"], row["cpus"], row["done"], row["left"], times,
                        row["noisy"], *noise, said))  # fmt: skip
        return 0

    def propose(self, count: int) -> list[dict[str, Any]]:
        """Return the runs not yet made that would teach most for what they cost, best first."""
        from voxcast.cli.proposals import proposals
        from voxcast.history.run_folders import record_rows

        plan = self._plan()
        known = {**self._recorded(plan, any_host=False), **record_rows(self._runs)}
        return proposals(plan, known, self._catalogue, count)

    def collect(self) -> list[str]:
        """Put new runs into parts of the history; return the new parts."""
        from voxcast.history.parts import collect

        sections = {"images", "apps", "devices", "campaign"}
        definition = self._config.model_dump(by_alias=True, include=sections)
        made = collect(
            self._runs, self._batch, campaign=self._name, campaign_sha256=sha256_of(definition)
        )
        return [str(part) for part in made]

    def make_images(self) -> None:
        """Make or list the volumes, and look at them, unless all of it is there."""
        from voxcast.images.catalogue import CATALOGUE, build_catalogue
        from voxcast.images.cohort import write_cohort
        from voxcast.images.participants import generated_ids
        from voxcast.images.recorded import RECORDED_IMAGES, check_recorded, recorded_images
        from voxcast.images.sources import read_tsv, refresh, write_tsv

        images, features = self._config.images, self._config.features
        listed, seen = self._images / "images.tsv", self._catalogue / "images.tsv"
        generated = images.kind == "cohort"
        if generated:
            files = write_cohort(
                self._images,
                seed=images.seed,
                subjects=images.subjects,
                sizes=images.sizes,
                label_prefix=images.label_prefix,
            )
        else:
            files = refresh(read_tsv(listed) if listed.is_file() else [], str(images.path))
        self._images.mkdir(parents=True, exist_ok=True)
        write_tsv(listed, files)
        if not (seen.is_file() and read_tsv(seen) == files):
            ids = generated_ids(self._images) if generated else None
            build_catalogue(
                files, self._catalogue, features.coarse_points, features.network_points, ids
            )
            write_tsv(seen, files)  # last: it says that the catalogue is whole
        kept = self._batch / RECORDED_IMAGES
        if generated and kept.is_file():
            check_recorded(self._catalogue, kept)
        else:  # images of somebody's own may have become more
            from voxcast.files import atomic_path

            made = recorded_images(self._catalogue, self._images if generated else None)
            with atomic_path(kept) as partial:
                made.to_parquet(partial, index=False)
        print(f"voxcast: {len(files)} volumes, {self._catalogue / CATALOGUE}", file=sys.stderr)

    def _plan(self) -> CampaignPlan:
        import pandas as pd

        from voxcast.campaigns.plan import make_plan
        from voxcast.images.catalogue import CATALOGUE

        path = self._catalogue / CATALOGUE
        if not path.is_file():
            recorded = ""
            if (self._batch / "provenance.yaml").is_file():
                recorded = f"{self._batch} holds what was recorded (see `voxcast variation`); "
            raise ConfigError(
                "no such file", path,
                f"{recorded}`voxcast campaign run {self._name}` makes the volumes and goes on",
            )  # fmt: skip
        campaign = self._config.campaign
        return make_plan(
            campaign.sweeps,
            self._config.apps,
            pd.read_parquet(path),
            self._config.configurations(),
            budget_s=campaign.budget_s,
            seed=campaign.seed,
            anchors=campaign.anchors,
        )

    def _recorded(self, plan: CampaignPlan, any_host: bool) -> dict[str, dict[str, Any]]:
        from voxcast.campaigns.overview import known_elsewhere
        from voxcast.history.parts import known_keys, load_history

        if not self._batch.is_dir() or not known_keys(self._batch):
            return {}
        return known_elsewhere(plan.cells, load_history([self._batch]), any_host=any_host)


def _line(app: object, scale: object, *others: object) -> str:
    widths = (5, 6, 6, 14, 7, 9, 8)
    numbers = "".join(f"{value!s:>{width}}" for value, width in zip(others, widths, strict=False))
    return f"  {app!s:15}{scale!s:12}{numbers}  {others[-1]}".rstrip()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
