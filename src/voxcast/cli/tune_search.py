"""The search that ``voxcast tune`` makes: studies and runs of a project, and their table."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError
from voxcast.files import PARTIAL, read_json, write_json

if TYPE_CHECKING:
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.studies.shared_search import SharedSearch

    Searches = dict[str, tuple[str, Validation]]

TRAIN, VOLUMES = Path("data/features/train.parquet"), Path("data/features/volumes.npz")
FOLDS = Path("build/folds")
SETTINGS, TOKEN = "settings.json", "token"


def project_search(folder: Path, url: str) -> tuple[SharedSearch, Searches, dict[str, Any]]:
    """Return the search of the project, its runs, and its table.

    Parameters
    ----------
    folder : Path
        That all workers share.
    url : str
        Of a database; empty for a journal file in the folder.

    Raises
    ------
    ConfigError
        Without a table, or if the folder belongs to another one.
    """
    from voxcast import config
    from voxcast.files import sha256_file
    from voxcast.models.families.family import family
    from voxcast.models.selection.learning import allowed_families
    from voxcast.models.selection.validations import validations
    from voxcast.studies.shared_search import SharedSearch

    cfg = config.load()
    if not TRAIN.is_file():
        raise ConfigError("no such file", TRAIN, "make it with `dvc repro featurize`")
    tuned = cfg.tune
    settings = {
        "table_sha256": sha256_file(TRAIN), "seed": tuned.seed, "folds": tuned.folds,
        "trials": tuned.trials, "families": list(tuned.families),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = _token(folder, settings)
    searches: Searches = {}
    for app, validation in validations(Path(), tuned.folds, tuned.seed).items():
        for name in allowed_families(tuned.families, validation):
            if family(name).defaults:
                searches[f"{app}/{name}"] = name, validation
    search = SharedSearch(folder, tuned.trials, tuned.seed, url, token)
    return search, searches, settings


def _token(folder: Path, settings: dict[str, Any]) -> str:
    """Return what sets the studies of a folder apart in a database, made with the folder.

    Raises
    ------
    ConfigError
        If the folder is of another search.
    """
    path = folder / SETTINGS
    if not path.exists():
        token = secrets.token_hex(6)
        draft = folder / f"{PARTIAL}{token}.json"
        write_json(draft, settings | {TOKEN: token})
        with contextlib.suppress(FileExistsError):  # of two commands, one makes the search
            path.hardlink_to(draft)
        draft.unlink()
    content: dict[str, Any] = read_json(path)
    token = content.pop(TOKEN, "")  # a folder of an earlier release has none
    if content != settings:
        then = "name another --folder, or remove it"
        raise ConfigError("is a search of other runs or settings", folder, then)
    return str(token)
