"""``voxcast models shadow``: a challenger that is asked what the champion is, unseen by clients.

voxcast models shadow                    which version is in shadow
voxcast models shadow --app NAME         the newest model of an application, as a new version
voxcast models shadow --version N        a version that is registered
voxcast models shadow --end              no version; what was logged stays
voxcast models shadow --report           how the answers of both differ, and who was nearer
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.models_promote import newest_model
from voxcast.cli.registry_options import quiet_mlflow
from voxcast.cli.shared_options import add_project_argument, registry_address
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError, ModelError, VoxcastError
from voxcast.quantities import counted

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.analysis.shadow_comparison import Run, ShadowComparison


def main(argv: list[str]) -> int:
    """Start, end or report a shadow, or tell which version is in shadow."""
    parser = VerbParser(
        prog="voxcast models shadow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--app", help="application whose newest model is registered in shadow")
    parser.add_argument("--version", metavar="N", help="version that answers in shadow")
    parser.add_argument("--end", action="store_true", help="let no version answer in shadow")
    parser.add_argument("--report", action="store_true", help="compare the logged answers")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    if sum((args.app is not None, args.version is not None, args.end, args.report)) > 1:
        raise ConfigError("choose one of --app, --version, --end and --report", "shadow")
    folder = project.require(args.project)
    if args.report:
        return _report(folder, as_json=args.json)
    if args.app is None and args.version is None and not args.end:
        return _in_shadow(folder, as_json=args.json)
    from voxcast.tracking import shadow

    if args.app is not None:
        with newest_model(folder, args.app) as (session, app, challenger, rule):
            receipt = shadow.start_newest(session, folder, app, challenger, rule.upper_quantile)
    else:
        with quiet_mlflow():
            receipt = (
                shadow.end(folder) if args.end else shadow.start_version(folder, args.version)
            )
    if args.json:
        print(json.dumps(receipt, indent=2))
    elif args.end:
        print(f"version {receipt['version']} answers in shadow no longer")
    else:
        print(f"version {receipt['version']} answers in shadow of version {receipt['champion']}")
    return 0


def _in_shadow(folder: Path, *, as_json: bool) -> int:
    from voxcast.tracking.shadow import SINCE, version_in_shadow

    version = version_in_shadow(registry_address(folder))
    if as_json:
        content = None if version is None else {"version": version.number, **version.tags}
        print(json.dumps(content, indent=2))
    elif version is None:
        print("no version is in shadow")
    else:
        since = version.tags.get(SINCE, "an unknown time")
        print(f"version {version.number} is in shadow since {since}")
    return 0


def _report(folder: Path, *, as_json: bool) -> int:
    from voxcast.analysis.shadow_comparison import shadow_comparisons
    from voxcast.serving.shadow_log import shadow_log

    log = shadow_log(folder)
    if not log.path.is_file():
        fix = "`voxcast serve` writes it while a version is in shadow; see VOXCAST_SHADOW_LOG"
        raise ModelError("no answers in shadow are logged", log.path, fix)
    try:
        answers, unreadable = log.answers()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", log.path) from None
    if not answers:
        raise ModelError(f"has no answers; {_unreadable(unreadable)}", log.path)
    apps = sorted({answer.app for answer in answers})
    runs, defaults, left_out = _history(folder, apps)
    comparisons = shadow_comparisons(answers, runs, defaults)
    if as_json:
        content = {
            "log": str(log.path),
            "unreadable_lines": unreadable,
            "without_history": left_out,
            "comparisons": [asdict(comparison) for comparison in comparisons],
        }
        print(json.dumps(_finite(content), indent=2, allow_nan=False))
        return 0
    for comparison in comparisons:
        _print(comparison, left_out.get(comparison.app))
    if unreadable:
        print(_unreadable(unreadable))
    return 0


def _history(
    folder: Path, apps: list[str]
) -> tuple[list[Run], dict[str, dict[str, Any]], dict[str, str]]:
    """Return runs and default parameters by application, and why there are no runs of some."""
    from voxcast.analysis.shadow_comparison import runs_of
    from voxcast.cli.app_history import runs_of_app

    runs: list[Run] = []
    defaults, left_out = {}, {}
    for app in apps:
        try:
            cfg, training = runs_of_app(folder, app)
        except VoxcastError as error:
            left_out[app] = str(error)
            continue
        defaults[app] = cfg.apps[app].parameters
        runs += runs_of(training.profiles, training.volumes)
    return runs, defaults, left_out


def _print(comparison: ShadowComparison, without_history: str | None) -> None:
    champion, challenger = comparison.versions
    print(
        f"{comparison.app}: version {challenger} in shadow of {champion}, bounds at "
        f"{100 * comparison.quantile:g} %: {counted(comparison.answers, 'answer')}, "
        f"{counted(comparison.questions, 'question')}, {counted(comparison.images, 'image')}"
    )
    for target, ratio in comparison.median_ratio.items():
        upper = comparison.upper_ratio[target]
        print(f"  {target}: medians {_text(ratio)} times the champion's, bounds {_text(upper)}")
    both, first, second = comparison.out_of_range
    print(f"  out of range: {both} of {comparison.questions} questions for both, "
          f"{first} for {champion} alone, {second} for {challenger} alone")  # fmt: skip
    if not comparison.runs:
        reason = without_history or "no later run of these images and allocations is on record"
        print(f"  not judged: {reason}")
        return
    print(f"  judged on {comparison.runs} later runs")
    for target, judgement in comparison.judgements.items():
        gain = judgement.gain
        nearer = "no difference is shown"
        if gain.bounded and not gain.low <= 0 <= gain.high:
            nearer = f"version {challenger if gain.value > 0 else champion} is nearer"
        print(
            f"    {target}: log error {judgement.champion_error.value:.4f} of {champion}, "
            f"{judgement.challenger_error.value:.4f} of {challenger}; {nearer} "
            f"(difference {_text(gain, signed=True)}); the bound held for "
            f"{judgement.champion_held} and {judgement.challenger_held} of "
            f"{judgement.images} images"
        )


def _unreadable(count: int) -> str:
    return f"of {counted(count, 'line')} of the log nothing can be read"


def _text(interval: Any, *, signed: bool = False) -> str:
    form = "+.4f" if signed else ".3f"
    if not interval.bounded:
        return f"{interval.value:{form}} (1 image: no interval)"
    return f"{interval.value:{form}} ({interval.low:{form}} to {interval.high:{form}})"


def _finite(value: Any) -> Any:
    """Return a JSON-able value with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and value - value != 0 else value
