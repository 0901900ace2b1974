"""``voxcast variation``: how runtimes vary by group: laws, modes, constancy of memory."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.laws.empirical import Constancy, QuantileInterval
    from voxcast.laws.modality import Modality
    from voxcast.laws.variation import Variation

BY = ("app", "device", "cpus", "scale", "host_class")
CAVEAT = (
    "p: Kolmogorov-Smirnov as if the law had not been fitted to these runs, which flatters it; "
    "bootstrap p: of the law fitted anew to each sample"
)


def main(argv: list[str]) -> int:
    """Print how the runs of each group vary."""
    parser = argparse.ArgumentParser(prog="voxcast variation", description=__doc__)
    parser.add_argument("history", type=Path, nargs="+", metavar="HISTORY", help="its folders")
    parser.add_argument(
        "--by", help=f"columns, label:NAME or parameter:NAME, by comma ({','.join(BY)})"
    )
    parser.add_argument("--target", default="runtime_s", help="column to describe (runtime_s)")
    parser.add_argument(
        "--bootstrap", type=int, default=200, help="samples for the bootstrap p (200; 0: none)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    if not 0 <= args.bootstrap <= 100_000:
        parser.error("--bootstrap must be between 0 and 100000")
    if args.seed < 0:
        parser.error("--seed must not be negative")

    import pandas as pd
    from tqdm import tqdm

    from voxcast.history.groups import groups
    from voxcast.history.repeats import once_each
    from voxcast.laws.empirical import constancy
    from voxcast.laws.variation import variation

    runs = _load(args.history)
    _check_target(runs, args.target)
    done = runs[runs["outcome"] == "completed"]
    known = done[done[args.target].notna() & (done[args.target] > 0)]
    talk = [f"{len(runs)} runs, {len(runs) - len(done)} of them not completed and left out"]
    if len(known) < len(done):
        talk.append(f"{len(done) - len(known)} without {args.target}")
    # Repeats and anchors are no further samples of how runs vary.
    measured = known["source"] == "measured"
    once = pd.concat([once_each(known[measured], args.target), known[~measured]])
    if len(once) < len(known):
        talk.append(f"{len(known) - len(once)} made again, which count once")
    print("; ".join(talk), file=sys.stderr)
    by = list(BY) if args.by is None else [name for name in args.by.split(",") if name]
    found = []
    for names, own in tqdm(groups(once, by), disable=None, delay=2):
        peaks = own["peak_rss_bytes"].dropna().astype(float)
        peaks = peaks[peaks > 0]
        found.append(
            (
                names,
                variation(
                    own[args.target].astype(float), bootstrap=args.bootstrap, seed=args.seed
                ),
                constancy(peaks) if len(peaks) else None,
            )
        )
    if not found:
        raise TableError(f"no completed run has {args.target}", args.history[0])
    if args.json:
        rows = [
            {"group": names, **varied.as_json(), "peak_memory": _memory_json(memory)}
            for names, varied, memory in found
        ]
        content = {"target": args.target, "runs": len(runs), "completed": len(done)}
        print(json.dumps({**content, "groups": rows}, indent=2, allow_nan=False))
        return 0
    shown = by if args.by is not None else _telling([names for names, _, _ in found])
    for names, varied, memory in found:
        _print({name: names[name] for name in shown}, varied, memory, args.target)
    print(CAVEAT, file=sys.stderr)
    return 0


def _telling(groups: Sequence[dict[str, str]]) -> list[str]:
    """Return the application and what else the groups differ in."""
    return [n for n in BY if n == "app" or len({names[n] for names in groups}) > 1]


def _load(folders: Sequence[Path]) -> pd.DataFrame:
    """Read recorded or imported parts, or the profiles of a folder of runs."""
    import pandas as pd

    from voxcast.history.parts import load_history
    from voxcast.history.run_folders import PROFILES_FILE

    measured = [folder for folder in folders if (folder / PROFILES_FILE).is_file()]
    frames = [pd.read_parquet(folder / PROFILES_FILE) for folder in measured]
    if rest := [folder for folder in folders if folder not in measured]:
        frames.append(load_history(rest))
    return pd.concat(frames, ignore_index=True).drop_duplicates("cell_key")


def _check_target(runs: pd.DataFrame, target: str) -> None:
    numbers = [name for name in runs.columns if name.endswith(("_s", "_bytes"))]
    if target not in numbers:
        raise TableError("no such target", target, f"there are {', '.join(numbers)}")


def _memory_json(memory: Constancy | None) -> dict[str, object] | None:
    if memory is None:
        return None
    return {**vars(memory), "constant": memory.constant}


def _print(
    names: dict[str, str], varied: Variation, memory: Constancy | None, target: str
) -> None:
    unit, factor = _unit(varied.mean, target)
    title = ", ".join(f"{name.rpartition(':')[2]} {value or '?'}" for name, value in names.items())
    print(
        f"{title or 'all runs'}: n {varied.n}, {varied.mean / factor:.1f} "
        f"± {varied.sd / factor:.1f} {unit}, CV {100 * varied.cv:.1f} %"
    )
    for at in varied.quantiles:
        print(
            f"  {100 * at.p:3.0f} % quantile {at.value / factor:8.1f} {unit}{_bounds(at, factor)}"
        )
    best = min((fit.aic for fit in varied.fits), default=0.0)
    for fit in varied.fits:
        p = "" if fit.ks_p_bootstrap is None else f", bootstrap p {fit.ks_p_bootstrap:.2f}"
        print(
            f"  {fit.family:17} KS {fit.ks:.4f}, p {fit.ks_p:.2f}{p}, "
            f"AIC {fit.aic:.1f} (best + {fit.aic - best:.1f})"
        )
    if varied.fits:
        tied = ", ".join(varied.tied[1:])
        print(
            f"  best by KS: {varied.best_by_ks}; by AIC: {varied.best_by_aic}"
            + (f", tied with {tied}" if tied else "")
        )
    print(f"  modes: {_modes(varied.modality, unit, factor)}")
    if memory is not None:
        print(
            f"  peak memory: {'constant, ' if memory.constant else ''}{format_bytes(memory.low)} "
            f"to {format_bytes(memory.high)}, CV {100 * memory.cv:.1f} %"
        )


def _bounds(at: QuantileInterval, factor: float) -> str:
    if at.low is None and at.high is None:
        return ""
    low, high = ("?" if end is None else f"{end / factor:.1f}" for end in (at.low, at.high))
    return f" ({low} to {high}, with {100 * at.confidence:.0f} %)"


def _modes(found: Modality, unit: str, factor: float) -> str:
    text: str = found.verdict
    if found.groups:
        text += f" (dip p {found.dip_p:.3f}; BIC gain of two lognormals {found.bic_gain:.0f})"
    if text.startswith("two"):
        text += ": " + ", ".join(
            f"{100 * group.weight:.0f} % around {group.median / factor:.1f} {unit}"
            for group in found.groups
        )
    return text


def _unit(size: float, target: str) -> tuple[str, float]:
    if target.endswith("_bytes"):
        return ("GB", 1e9) if size >= 1e9 else ("MB", 1e6)
    if size >= 36_000:
        return "h", 3600.0
    return ("min", 60.0) if size >= 600 else ("s", 1.0)
