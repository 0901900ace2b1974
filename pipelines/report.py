"""Stage report: a page for people, and the ten lines that `make demo` ends with."""

import sys
from pathlib import Path

from voxcast.errors import exits_cleanly
from voxcast.files import write_text
from voxcast.report.inputs import Evidence
from voxcast.report.narrative import Findings
from voxcast.report.page import page
from voxcast.report.summary import summary

OUT = Path("results/report")


@exits_cleanly
def main() -> int:
    """Write results/report from what the stages before left."""
    findings = Findings.of(Evidence.read(Path()))
    write_text(OUT / "index.html", page(findings, Path()))
    write_text(OUT / "summary.txt", summary(findings, str(OUT / "index.html")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
