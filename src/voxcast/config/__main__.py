"""``python -m voxcast.config``: compose ``params.yaml``, or check that it has not drifted."""

from __future__ import annotations

import argparse
import sys

from voxcast.config.load import PARAMS_FILE, compose, drifts, load
from voxcast.errors import ConfigError, exits_cleanly


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Compose ``params.yaml``, or check that it has not drifted from ``conf/``."""
    parser = argparse.ArgumentParser(prog="python -m voxcast.config", description=main.__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, e.g. campaign=tiny")
    parser.add_argument("--check", action="store_true", help="only compare; exit 2 on drift")
    args = parser.parse_args(argv)
    if args.check:
        if drifts():
            raise ConfigError(
                "differs from conf/ as composed", PARAMS_FILE, "run `python -m voxcast.config`"
            )
        print(f"{PARAMS_FILE} agrees with conf/ as composed", file=sys.stderr)
        return 0
    compose(PARAMS_FILE, args.overrides)
    load(PARAMS_FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
