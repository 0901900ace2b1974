"""Measure on another machine with a GPU: prepare the inputs here, run there, collect here.

This is not a stage of the graph. The other machine needs this checkout, the folder of inputs, and
a Python with torch, numpy and nibabel; voxcast need not be installed.

    python pipelines/gpu_campaign.py prepare --inputs build/gpu/inputs
    python3 pipelines/gpu_campaign.py run --inputs build/gpu/inputs --archive gpu_runs.tar.gz
    python pipelines/gpu_campaign.py collect --archive gpu_runs.tar.gz --into data/runs
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCE))
# The applications run as separate processes.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
)

from voxcast.campaigns.gpu.paired_cells import NETWORK, REPEATS, TRAINING, training_points  # noqa: E402
from voxcast.errors import ConfigError, exits_cleanly  # noqa: E402


def prepare(args: argparse.Namespace) -> None:
    """Write the inputs from the generated image set of this project."""
    import pandas as pd

    from voxcast import config
    from voxcast.campaigns.gpu.prepared_inputs import Source
    from voxcast.campaigns.gpu.prepared_inputs import prepare as write_inputs
    from voxcast.images.image_set import recipes_in

    apps = {name: config.load_app("conf/app", name) for name in (TRAINING, NETWORK)}
    if not args.catalogue.is_file():
        raise ConfigError("no such file", args.catalogue, "run `dvc repro catalogue`")
    rows = pd.read_parquet(args.catalogue)
    rows = rows[rows["problem"].isna()].drop_duplicates("volume_id").sort_values("volume_id")
    recipes = recipes_in(args.images)
    columns = ["volume_id", "subject", "path"]
    sources = [
        Source(volume, subject, Path(path), recipes.get(volume))
        for volume, subject, path in rows.head(args.volumes)[columns].astype(str).to_numpy()
    ]
    print(write_inputs(args.inputs, apps, sources, training_points(), REPEATS))


def run(args: argparse.Namespace) -> None:
    """Measure on the available devices."""
    from voxcast.campaigns.gpu.archive import unpack
    from voxcast.campaigns.gpu.machine import run_gpu_campaign

    # When stopped by a signal, the runs on record are still packed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if args.resume is not None:
        unpack(args.resume, args.work)
    summary = run_gpu_campaign(
        args.inputs,
        args.work,
        args.archive,
        devices=args.devices.split(","),
        cpus=args.cpus,
        budget_s=args.budget_s,
        time_limit_s=args.time_limit_s,
    )
    for note in summary.notes:
        print(f"voxcast: {note}", file=sys.stderr)
    print(f"{summary.measured} runs measured, {summary.recorded} of {summary.planned} on record")


def collect(args: argparse.Namespace) -> None:
    """Add the runs of an archive to those of this project."""
    from voxcast.campaigns.gpu.archive import collect as collect_archive

    counts = collect_archive(args.archive, args.into)
    print(", ".join(f"{count} {group}" for group, count in sorted(counts.items())) or "no runs")


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the action named on the command line."""
    parser = argparse.ArgumentParser(
        prog="gpu_campaign", description=(__doc__ or "").split("\n")[0]
    )
    verbs = parser.add_subparsers(required=True)
    inputs, archive = Path("build/gpu/inputs"), Path("build/gpu/gpu_runs.tar.gz")
    verb = verbs.add_parser("prepare", help=prepare.__doc__)
    verb.set_defaults(action=prepare)
    verb.add_argument("--inputs", type=Path, default=inputs)
    verb.add_argument("--images", type=Path, default=Path("data/images"))
    verb.add_argument("--catalogue", type=Path, default=Path("data/catalogue/catalogue.parquet"))
    verb.add_argument("--volumes", type=int, default=12)
    verb = verbs.add_parser("run", help=run.__doc__)
    verb.set_defaults(action=run)
    verb.add_argument("--inputs", type=Path, default=inputs)
    verb.add_argument("--work", type=Path, default=Path("build/gpu/work"))
    verb.add_argument("--archive", type=Path, default=archive)
    verb.add_argument("--resume", type=Path, help="archive of an earlier campaign to continue")
    verb.add_argument("--devices", default="cpu,gpu")
    verb.add_argument("--cpus", type=int, default=4, help="CPUs of every run")
    verb.add_argument("--budget-s", type=float, default=450.0)
    verb.add_argument("--time-limit-s", type=float, default=60.0, help="time limit of one run")
    verb = verbs.add_parser("collect", help=collect.__doc__)
    verb.set_defaults(action=collect)
    verb.add_argument("--archive", type=Path, default=archive)
    verb.add_argument("--into", type=Path, default=Path("data/runs"))
    args = parser.parse_args(argv)
    args.action(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
