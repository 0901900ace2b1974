"""The speeds of machines after further runs, brought up to date at the end of a verb."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from voxcast.errors import UnlearnedError, VoxcastError, one_line

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


def update_after_runs(folder: Path) -> None:
    """Write the speeds of machines of a project again, if it has a champion.

    A failure is logged: runs and models are not lost by it.
    """
    from voxcast.serving.machine_updates import update_machines
    from voxcast.serving.model_store import ModelStore

    try:
        bundle = ModelStore.of(folder).open()
        update_machines(folder, bundle, characteristic_versions(folder))
    except UnlearnedError:
        return
    except VoxcastError as error:
        logger.warning("the speeds of machines stay as they were: %s", one_line(error))


def characteristic_versions(folder: Path) -> dict[str, int]:
    """Return the versions of all characteristics, also of a project's."""
    from voxcast import config
    from voxcast.images.characteristics import versions_of

    return versions_of(config.load(folder / config.PARAMS_FILE).features.characteristics)
