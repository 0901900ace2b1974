"""Stage studies_page: the results of the studies as a page beside the report."""

import sys
from pathlib import Path

from voxcast.errors import exits_cleanly
from voxcast.files import write_text
from voxcast.report.study_tables import read_studies, studies_page

STUDIES = Path("results/studies")
OUT = Path("results/report/studies.html")


@exits_cleanly
def main() -> int:
    """Write results/report/studies.html from those studies that have a result."""
    write_text(OUT, studies_page(read_studies(STUDIES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
