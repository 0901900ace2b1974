"""Stage report: the results as an HTML page, and the summary that `make demo` prints."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.files import write_text
from voxcast.report.inputs import ReportInputs
from voxcast.report.page import page, summary
from voxcast.report.results import Results

OUT = Path("results/report")


@exits_cleanly
def main() -> int:
    """Write the page and the summary from the results of the earlier stages."""
    results = Results.of(ReportInputs.read(Path(), config.load().apps))
    write_text(OUT / "index.html", page(results, Path()))
    write_text(OUT / "summary.txt", summary(results, str(OUT / "index.html")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
