"""Stage domain of pipelines/dvc.yaml: do real heads belong to the cohorts to learn from?"""

import sys
from pathlib import Path

from voxcast.analysis.domain import compare_on_record
from voxcast.errors import exits_cleanly
from voxcast.files import write_json

HISTORY = Path("data/history")
COHORTS, HEADS = ("reference", "reference2"), ("heads", "real")
OUT = Path("results/studies/domain.json")


@exits_cleanly
def main() -> int:
    """Write ``results/studies/domain.json``."""
    comparisons = compare_on_record(HISTORY, COHORTS, HEADS)
    write_json(OUT, comparisons)
    for name, comparison in comparisons.items():
        heads = f"{comparison['heads_inside']} of {len(comparison['heads'])} heads"
        print(f"{name}: {heads} within the range of all characteristics", file=sys.stderr)
        for head, misses in comparison["misses"].items():
            outside = ", ".join(f"{m['characteristic']} {m['value']:.3g}" for m in misses)
            print(f"  {head}: {outside}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
