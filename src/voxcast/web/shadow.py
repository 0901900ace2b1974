"""The challenger in the shadow of the champion: asked the same rows once the answer is sent."""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import VoxcastError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from voxcast.serving.shadow_log import ShadowLog
    from voxcast.web.served_model import ServedModel

MAX_WAITING = 200  # answers; more are not compared, so that the champion is never slowed down
MAX_ROWS = 64  # of an answer that is compared

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RowAnswers:
    """Rows that were asked of the champion, and its predictions."""

    served: ServedModel
    rows: Sequence[Mapping[str, Any]]
    predictions: Sequence[Mapping[str, Any]]
    quantile: float


class Shadow:
    """Asks the challenger what the champion was asked, in a thread, and logs both answers.

    Parameters
    ----------
    challenger : callable
        Returns the challenger of the moment, or None.
    log : ShadowLog
        Where both answers are written.

    Attributes
    ----------
    skipped : int
        Answers that were not compared, because too many waited.
    """

    def __init__(self, challenger: Callable[[], ServedModel | None], log: ShadowLog) -> None:
        self._challenger, self._log = challenger, log
        self._waiting: queue.Queue[RowAnswers | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._compare, name="shadow", daemon=True)
        self.skipped = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Compare what waits, and end the thread."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join(timeout=5)

    def after_answer(self, answers: RowAnswers) -> None:
        """Take an answer; never waits."""
        if self._challenger() is None or len(answers.rows) > MAX_ROWS:
            return
        try:
            self._waiting.put_nowait(answers)
        except queue.Full:
            self.skipped += 1

    def _compare(self) -> None:
        while (answers := self._waiting.get()) is not None:
            challenger = self._challenger()
            if challenger is None:
                continue
            try:
                rows = list(answers.rows)
                predictions = challenger.predictions.predict(rows, answers.quantile)
                self._log.add(
                    answers.predictions, predictions, answers.served.version,
                    challenger.version, rows, answers.quantile,
                )  # fmt: skip
            except VoxcastError as error:  # such as an application that it does not have
                logger.info("the challenger does not answer: %s", error)
            except Exception:  # a fault of a challenger must not be one of the service
                logger.exception("the challenger fails")
