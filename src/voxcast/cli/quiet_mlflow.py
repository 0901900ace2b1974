"""MLflow kept off standard output, where the result alone goes."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def quiet_mlflow() -> Iterator[None]:
    """Let what MLflow prints go to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
