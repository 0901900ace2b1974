"""voxcast: runtime and memory of neuroimaging applications, predicted per image."""

from typing import Any

__version__ = "0.1.0"

# Names that are imported when they are used, so that `import voxcast` stays light.
_LAZY = {"Client": "voxcast.serving.client"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
