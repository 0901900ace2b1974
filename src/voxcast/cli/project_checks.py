"""Features of the installation and the project, one check for each; and the newest model."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.machine_checks import FULL_BYTES, Check
from voxcast.cli.quiet_mlflow import quiet_mlflow
from voxcast.errors import ModelError, VoxcastError, one_line
from voxcast.quantities import format_bytes
from voxcast.tracking.address import tracking_uri, without_password

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from voxcast.tracking.challengers import AppFacts, Challenger
    from voxcast.tracking.promotion import Rule
    from voxcast.tracking.runs import Session


CONSTRAINTS = "constraints.txt"
MAX_NAMED = 4
MEANS_BY_EXTRA = {
    "apps": "the built-in applications cannot be run",
    "train": "nothing can be learned",
    "serve": "a champion cannot be loaded here; `--model URL` asks a server",
}


def installation_checks(project: Path | None) -> Iterator[Check]:
    """Yield the checks of Python and the packages."""
    yield Check("Python", "works", platform.python_version(), "")
    missing: dict[str, list[str]] = {}
    for name, extra in _requirements():
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.setdefault(extra, []).append(name)
    if core := missing.pop("", None):
        fact, fix = f"missing: {', '.join(core)}", "install voxcast again"
        yield Check("packages", "broken", fact, fix)
    else:
        yield Check("packages", "works", "those of the core are installed", "")
    for extra, meaning in MEANS_BY_EXTRA.items():
        if extra in missing:
            fix = f"{meaning}; pip install 'voxcast[{extra}]'"
            yield Check(
                f"packages: {extra}", "absent", f"missing: {', '.join(missing[extra])}", fix
            )
        else:
            yield Check(f"packages: {extra}", "works", "installed", "")
    if project is not None and (project / CONSTRAINTS).is_file():
        yield _versions(project / CONSTRAINTS)


def project_checks(project: Path | None) -> Iterator[Check]:
    """Yield the checks of the project, its registry, DVC and git."""
    if project is None:
        then = "predictions need a project or `--model URL`: `voxcast init` writes one"
        yield Check("project", "absent", "none here or above", then)
        return
    yield _configuration(project)
    yield _rights(project)
    yield _models(project)
    for name, program, folder, means in (
        ("git", "git", ".git", "results are not under version control"),
        ("DVC", "dvc", ".dvc", "`voxcast learn` and `dvc repro` do not work"),
    ):
        if shutil.which(program) is None:
            yield Check(name, "absent", f"{program} is not on the path", means)
        elif not any((above / folder).exists() for above in (project, *project.parents)):
            yield Check(name, "limited", f"no {folder} in the project or above", means)
        else:
            yield Check(name, "works", shutil.which(program) or "", "")


def _requirements() -> Iterator[tuple[str, str]]:
    """Yield the names of required packages with their extra, empty for the core."""
    for line in importlib.metadata.requires("voxcast") or ():
        requirement, _, condition = line.partition(";")
        match = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        extra = match[1] if match else ""
        name = re.split(r"[^\w.-]", requirement.strip())[0]
        if name != "voxcast" and (extra == "" or extra in MEANS_BY_EXTRA):
            yield name, extra


def _versions(constraints: Path) -> Check:
    other = []
    for line in constraints.read_text(encoding="utf-8").splitlines():
        name, _, wanted = line.partition("#")[0].strip().partition("==")
        if not wanted:
            continue
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version.partition("+")[0] != wanted.partition("+")[0]:
            other.append(f"{name} {version} (tested: {wanted})")
    if not other:
        return Check("versions", "works", f"as in {CONSTRAINTS}", "")
    more = f" and {len(other) - MAX_NAMED} more" if len(other) > MAX_NAMED else ""
    fact = f"{', '.join(other[:MAX_NAMED])}{more}"
    return Check(
        "versions", "limited", fact, f"`pip install -c {CONSTRAINTS}` installs the tested"
    )


def _configuration(project: Path) -> Check:
    from voxcast import config

    try:
        params = config.load(project / config.PARAMS_FILE)
    except VoxcastError as error:
        return Check("project", "broken", one_line(error), "no verb that needs it works")
    return Check("project", "works", f"{project}, configured: {', '.join(params.apps)}", "")


def _rights(project: Path) -> Check:
    free = shutil.disk_usage(project).free
    fact = f"{format_bytes(free)} free"
    if not os.access(project, os.W_OK):
        then = "predictions work; measuring and learning do not"
        return Check("disk", "limited", f"{fact}, the project may not be written", then)
    if free < FULL_BYTES:
        return Check(
            "disk", "limited", fact, "a full disk ends runs; `voxcast doctor --clean` makes room"
        )
    return Check("disk", "works", fact, "")


def _models(project: Path) -> Check:
    from voxcast.serving.model_store import ModelStore

    store = ModelStore.of(project)
    try:
        pointer, uri = store.pointer(), tracking_uri(project)
    except VoxcastError as error:
        return Check("models", "broken", one_line(error), "nothing can be predicted or learned")
    if pointer.champion is None:
        then = "nothing can be predicted yet; `make demo` or `voxcast learn` trains a model"
        return Check("models", "absent", "no version yet", then)
    numbers = ", ".join(sorted(pointer.versions, key=int))
    apps = ", ".join(pointer.versions[pointer.champion].apps)
    fact = (
        f"versions: {numbers}; champion: {pointer.champion}, of {apps}; "
        f"MLflow: {without_password(uri)}"
    )
    try:
        problems = store.open().problems()
    except VoxcastError as error:
        return Check("models", "broken", f"{fact}; {one_line(error)}", "nothing can be predicted")
    if problems:
        name, problem = next(iter(problems.items()))
        return Check(
            "models", "limited", f"{fact}; {name}: {problem}", "see `voxcast models verify`"
        )
    return _registry(uri, pointer.champion, fact)


def _registry(uri: str, champion: str, fact: str) -> Check:
    """Return whether a registry that others write to has the same champion."""
    from voxcast.tracking.address import path_of
    from voxcast.tracking.registry import champion_number, mlflow_client

    if path_of(uri) is not None:
        return Check("models", "works", fact, "")
    try:
        with mlflow_client(uri) as client:
            number = champion_number(client)
    except VoxcastError as error:
        fact = f"{fact}; {one_line(error)}"
        return Check("models", "limited", fact, "nothing can be learned")
    if number is None:
        fact = f"{fact}; it has no champion"
        return Check("models", "limited", fact, "`make repro` registers this one")
    if number != champion:
        fact = f"{fact}; its champion is version {number}"
        return Check("models", "limited", fact, "`voxcast models pull` fetches it")
    return Check("models", "works", fact, "")


@contextlib.contextmanager
def newest_model(folder: Path, name: str) -> Iterator[tuple[Session, AppFacts, Challenger, Rule]]:
    """Hold the project while the newest model of an application is used, without MLflow's talk.

    Raises
    ------
    ModelError
        If no model of it was trained in the last pass.
    """
    from voxcast import config
    from voxcast.cli.graph import dvc_lock, learning_lock
    from voxcast.config.served_facts import app_facts, promotion_rule
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import challengers

    # The stages of a pass write these files.
    with learning_lock(folder), dvc_lock(folder), quiet_mlflow():
        cfg = config.load(folder / config.PARAMS_FILE)
        by_app = challengers(folder, cfg.tune.folds, cfg.tune.seed)
        if name not in by_app or name not in cfg.apps:
            raise _not_in_last_pass(name, by_app, folder)
        challenger = by_app[name]
        app = app_facts(cfg, name, challenger.table)
        yield runs.connect(folder), app, challenger, promotion_rule(cfg)


def _not_in_last_pass(app: str, by_app: Iterable[str], folder: Path) -> ModelError:
    """Return the error of an application without a model in the last pass."""
    from voxcast.serving.model_store import ModelStore

    trained = ", ".join(sorted(by_app))
    versions = ModelStore.of(folder).pointer().versions.values()
    registered = {name for version in versions for name in version.apps}
    if app in registered:
        reason = f"the last pass of learning was of {trained}, so no new model of it is at hand"
        return ModelError(reason, app, f"run `voxcast learn --app {app}` first")
    names = ", ".join(sorted({*by_app, *registered}))
    return ModelError(f"unknown application; models were trained for {names}", app)
