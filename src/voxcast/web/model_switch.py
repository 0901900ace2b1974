"""Follows the champion: loads another version beside the served one and switches.

A version is loaded, verified and asked once before it is served. One that cannot be is refused,
and the old one stays. The switch is one assignment, so requests in flight keep their version.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from typing import TYPE_CHECKING

from voxcast.errors import VoxcastError, one_line
from voxcast.serving.prediction_service import PredictionService

if TYPE_CHECKING:
    from voxcast.web.server import Settings

RETRY_S = 60.0  # between two tries of a version that was refused

logger = logging.getLogger(__name__)


class ModelSwitch:
    """The champion that is served now.

    Parameters
    ----------
    settings : Settings
        With the versions of the model, and the time between two looks.

    Attributes
    ----------
    champion : PredictionService or None
        The version that answers.
    refused : dict of str to str
        The champion that is not served, if any, with the reason.
    problem : str
        Why the champion's number could not be read at the last look; empty if it could.
    switches : int
        How often the champion was replaced.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.champion: PredictionService | None = None
        self.refused: dict[str, str] = {}
        self.problem = ""
        self.switches = 0
        self._tried_at: dict[str, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="model-switch", daemon=True)

    def start(self) -> None:
        """Look every ``poll_s`` in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self.settings.poll_s + 1)

    def _follow(self) -> None:
        while not self._end.is_set():
            self.look()
            self._end.wait(self.settings.poll_s)

    def look(self) -> None:
        """Read once which version is the champion, and load it if it is another one."""
        problem = ""
        try:
            if self.settings.registry is not None:
                from voxcast.tracking.registry import follow

                follow(self.settings.store, self.settings.registry)
        except VoxcastError as error:  # the champion that is here is served
            problem = one_line(error)
        except Exception as error:  # a thread that ends would serve an old model for ever
            problem = f"the registry cannot be read: {one_line(error) or error!r}"
        try:
            number = self.settings.store.champion()
        except VoxcastError as error:
            self._log_problem(problem or one_line(error))
            return
        self._log_problem(problem)
        for other in set(self.refused) - {number}:
            del self.refused[other]
        loaded = self._loaded(number)
        if loaded is not None and loaded is not self.champion:
            before, self.champion = self.champion, loaded
            self.switches += before is not None
            logger.info("version %s is served", loaded.version)
            # What stays until the next switch is not looked at again: to look at all objects of
            # libraries and a model for garbage stops all answers for a quarter of a second.
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _loaded(self, number: str) -> PredictionService | None:
        """Return the version with this number, or the served one if it cannot be loaded."""
        served = self.champion
        if served is not None and served.version == number:
            return served
        now = time.monotonic()
        if number in self.refused and now - self._tried_at[number] < RETRY_S:
            return served
        self._tried_at[number] = now
        try:
            loaded = PredictionService(self.settings.store.open(number), self.settings.machines)
            for app in loaded.apps:
                loaded.warm(app)
        except Exception as error:  # any error that its files can cause
            reason = one_line(error) or repr(error)
            if self.refused.get(number) != reason:
                logger.warning("version %s is refused: %s", number, reason)
            self.refused[number] = reason
            return served
        self.refused.pop(number, None)
        return loaded

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.warning("%s", problem)
        elif self.problem and not problem:
            logger.info("the registry can be read again")
        self.problem = problem
