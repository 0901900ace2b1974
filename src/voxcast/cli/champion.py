"""Asking the champion, for the verbs that do: loaded here, or behind an address."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast.cli import project
from voxcast.errors import ModelError
from voxcast.records import Configuration

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Champion:
    """The registered model as a verb asks it.

    Attributes
    ----------
    app : str or None
        What it is asked about; None for the model's first application.
    configurations : list of Configuration
        Those that were tried, or those that the user asked for.
    answer : callable
        From rows of a request, quantile and whether to explain, to its answers.
    """

    app: str | None
    configurations: list[Configuration]
    coarse_points: int
    header_only: bool
    answer: Callable[[Rows, float, bool], Rows]

    def questions(
        self, image: Path, configurations: Sequence[Configuration] | None = None
    ) -> Rows:
        """Return the rows that ask about an image; see `voxcast.serving.client.questions`."""
        from voxcast.serving.client import questions

        return questions(
            image, self.app, self.configurations if configurations is None else configurations,
            coarse_points=self.coarse_points, header_only=self.header_only,
        )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says whom to ask about what."""
    parser.add_argument("--app", help="application (default: the model's first)")
    parser.add_argument(
        "--cpus", type=_cpus, metavar="N,N", help="CPUs (default: those that were tried)"
    )
    parser.add_argument("--header-only", action="store_true", help="do not read voxels")
    parser.add_argument("--url", help="ask a server started by `voxcast serve`")
    project.add_argument(parser)


def _cpus(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {min(counts)}")
    return counts


def champion(args: argparse.Namespace) -> Champion:
    """Return the champion that the arguments of `add_arguments` name.

    Raises
    ------
    ModelError
        If there is none here, or it does not know the application.
    """
    return _remote(args) if args.url else _local(args)


def _local(args: argparse.Namespace) -> Champion:
    folder = project.find(args.project)
    # MLflow and its friends talk on start-up; a user asked a question.
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):
        import pandas as pd

        from voxcast.tracking.registry import load_champion

        answers = load_champion(folder).unwrap_python_model().answers
    catalogue = answers.catalogue
    app = args.app or next(iter(catalogue.apps))
    if app not in catalogue.apps:
        known = ", ".join(catalogue.apps)
        raise ModelError(f"unknown application, the champion knows {known}", app)

    def answer(rows: Rows, quantile: float, explained: bool) -> Rows:
        answered = answers.answer(pd.DataFrame(rows), quantile, explained=explained)
        records: Rows = json.loads(answered.to_json(orient="records"))
        return records

    chosen = _chosen(args, catalogue.configurations)
    return Champion(app, chosen, catalogue.coarse_points, args.header_only, answer)


def _remote(args: argparse.Namespace) -> Champion:
    from voxcast import config
    from voxcast.images.volumes import POINTS
    from voxcast.serving.client import ask

    folder = project.find(args.project)
    known = None if folder is None else config.load(folder / config.PARAMS_FILE)
    points = POINTS if known is None else known.features.coarse_points
    tried = [Configuration("cpu", 1)] if known is None else known.configurations("cpu")
    app = args.app or (None if known is None else next(iter(known.app)))

    def answer(rows: Rows, quantile: float, explained: bool) -> Rows:
        return ask(args.url, rows, quantile, explained=explained)

    return Champion(app, _chosen(args, tried), points, args.header_only, answer)


def _chosen(args: argparse.Namespace, tried: list[Configuration]) -> list[Configuration]:
    return [Configuration("cpu", n) for n in args.cpus] if args.cpus else tried
