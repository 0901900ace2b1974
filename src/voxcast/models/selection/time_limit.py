"""A time limit on code that cannot be asked to stop, such as the fit of an estimator."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

AGAIN_S = 0.2  # a library's callback may swallow the exception: it is raised again until it ends


class TimeUpError(BaseException):
    """The time limit is reached; not an `Exception`, which libraries catch."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeUpError` in the block after some seconds.

    The block must hold no lock and change no state that outlives it. No limit holds outside the
    main thread, or where another timer of the process runs.

    Parameters
    ----------
    seconds : float
        Infinity for no limit; at 0 or below the block does not start.

    Raises
    ------
    TimeUpError
        When the time is up.
    """
    if seconds <= 0:
        raise TimeUpError
    main_thread = threading.current_thread() is threading.main_thread()
    if math.isinf(seconds) or not main_thread or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    fired = False

    def stop(*_: object) -> NoReturn:
        nonlocal fired
        fired = True
        raise TimeUpError

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        yield
    except Exception as error:
        if fired:  # compiled code replaced our exception by its own
            raise TimeUpError from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if fired:  # it was swallowed, and the outcome may be incomplete
        raise TimeUpError
