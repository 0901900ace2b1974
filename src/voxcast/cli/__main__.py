"""``python -m voxcast.cli`` is ``voxcast``."""

import sys

from voxcast.cli import main

sys.exit(main())
