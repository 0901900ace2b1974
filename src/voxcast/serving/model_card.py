"""The card of a version of the registered model, as Markdown, for the people who use its answers.

It states the facts in the bundle, and says that the rest is not recorded. The headings follow
Mitchell et al., Model cards for model reporting (FAT* 2019).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.features.descriptions import natural, plain_name, quantity_title, value_range
from voxcast.models.selection.promotion_rule import REASONS
from voxcast.quantities import counted
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from voxcast.serving.bundle import Bundle
    from voxcast.serving.served_app import Promotion, ServedApp

UNKNOWN = "not recorded"
_TARGET_TITLES = {"cpu_s": "CPU time", "runtime_s": "wall time", "peak_rss_bytes": "memory"}
_USE = """\
It predicts CPU time (`cpu_s`), wall time (`runtime_s`) and memory (`peak_rss_bytes`) of a run of
an application on an image, as a median and bounds, for each configuration. It is for requests to a
scheduler. Research use: it tells nothing about a patient."""
_LIMITS = """\
- An answer holds for the version of the application and the kinds of machine named below; another
  machine is told apart by its id, and not calibrated before runs on it are on record.
- Out of the ranges below an answer is an extrapolation: it says so in `out_of_range`, and is not
  called calibrated. Ranges of textures are not checked.
- Bounds hold for subjects like those that were measured. `docs/method.md` has the rest."""


def model_card(bundle: Bundle) -> str:
    """Return the card of a bundle.

    Parameters
    ----------
    bundle : Bundle
        The version; one that is not registered yet has no number.
    """
    title = f"# voxcast, version {bundle.version}" if bundle.version else "# voxcast"
    lines = [title, "", _USE, "", *_record(bundle), "", "## Limits", "", _LIMITS]
    for name in bundle.facts:
        lines += ["", f"## {name}", ""]
        if name in bundle.damaged:
            lines.append(f"Damaged: {bundle.damaged[name]}.")
        else:
            lines += _application(bundle, bundle.apps[name])
    return "\n".join(lines) + "\n"


def _record(bundle: Bundle) -> Iterator[str]:
    origin = bundle.origin
    yield f"- made for: `{origin.promoted or UNKNOWN}`"
    yield f"- replaced version: {origin.previous or 'none'}"
    yield f"- commit of the project: {origin.git_commit or UNKNOWN}"


def _reason(reason: str) -> str:
    return f"{reason} ({REASONS[reason]})" if reason in REASONS else reason


def _judgement(promotion: Promotion) -> str:
    reason = _reason(promotion.reason)
    # The detail of a reason without figures is its meaning again.
    is_repeated = promotion.detail in ("", REASONS.get(promotion.reason))
    return reason if is_repeated else f"{reason}: {promotion.detail}"


def _application(bundle: Bundle, served: ServedApp) -> Iterator[str]:
    promotion = served.promotion
    evidence = promotion.evidence
    yield f"- version measured: {promotion.app_version or UNKNOWN}"
    yield f"- default parameters: `{json.dumps(served.parameters, sort_keys=True)}`"
    yield f"- configurations measured: {_configurations(served)}"
    yield f"- machines measured: {'; '.join(served.host_classes) or UNKNOWN}"
    yield f"- family: {promotion.family}, `{json.dumps(promotion.params, sort_keys=True)}`"
    seen = ", ".join(served.characteristics) or "none, the header alone"
    yield f"- characteristics seen: {seen}"
    yield f"- learned from: {_data(promotion)}"
    yield f"- training table: SHA-256 `{promotion.table_sha256}`"
    yield f"- forecaster: SHA-256 `{served.forecaster_sha256}`"
    yield f"- software: {', '.join(evidence.get('software', ())) or UNKNOWN}"
    calibrated = "calibrated" if promotion.calibrated else "not calibrated"
    quantile = f"{100 * promotion.upper_quantile:g} %"
    yield f"- mean log error of CPU time and memory, out of fold: {promotion.cv_objective:.4f}"
    yield f"- bounds at {quantile}: {calibrated}, {promotion.promoted_at}"
    yield f"- how it was judged: {_judgement(promotion)}"
    yield f"- compared with the champion before it: {_comparison(evidence.get('comparison'))}"
    yield from ("", "### Errors and coverage", "")
    yield from _errors(promotion)
    yield from ("", "### Measured ranges", "")
    yield from _ranges(bundle, served.name)


def _configurations(served: ServedApp) -> str:
    measured = served.measured or [(c.device, c.cpus, c.gpus) for c in served.configurations]
    return ", ".join(
        f"{device} with {counted(cpus, 'CPU')}" + (f" and {counted(gpus, 'GPU')}" if gpus else "")
        for device, cpus, gpus in measured
    )


def _data(promotion: Promotion) -> str:
    training = promotion.evidence.get("training", {})
    sets = training.get("image_sets")
    listed = UNKNOWN
    if sets:
        listed = ", ".join(f"{name or 'without a name'} ({n} runs)" for name, n in sets.items())
    dates = UNKNOWN
    if training.get("first_run_at"):
        dates = f"{training['first_run_at'][:10]} to {training['last_run_at'][:10]}"
    share = 100 * promotion.noisy_runs / promotion.runs if promotion.runs else 0.0
    return (
        f"{counted(promotion.runs, 'run')} of {counted(promotion.subjects, 'subject')}, "
        f"{share:.0f} % measured beside other work; image sets: {listed}; measured: {dates}"
    )


def _comparison(comparison: Mapping[str, Any] | None) -> str:
    if not comparison:
        return UNKNOWN
    subjects = comparison["gain"]["subjects"]
    parts = [
        f"{name} {_interval(comparison[name])}" for name in ("challenger", "champion", "gain")
    ]
    return f"mean log error over {counted(int(subjects), 'held-out subject')}: {', '.join(parts)}"


def _interval(interval: Mapping[str, float | None]) -> str:
    if interval["value"] is None:
        return UNKNOWN
    if interval["low"] is None or interval["high"] is None:
        return f"{interval['value']:.4f}"
    return f"{interval['value']:.4f} ({interval['low']:.4f} to {interval['high']:.4f})"


def _errors(promotion: Promotion) -> Iterator[str]:
    evidence = promotion.evidence
    errors, risks = evidence.get("errors_percent", {}), evidence.get("risk_at_upper_quantile", {})
    medians = evidence.get("cross_validation", {})
    noise = evidence.get("noise_floor_percent", {})
    yield "| target | mean error | median error | repeats of one run | subjects above the bound |"
    yield "| --- | --- | --- | --- | --- |"
    for target in TARGETS:
        median = medians.get(f"{target}/median_ape")
        cells = (
            _TARGET_TITLES[target],
            _percent(errors.get(target)),
            UNKNOWN if median is None else f"{median:.2g} %",
            _percent(noise.get(target)),
            _risk(risks.get(target)),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        "Errors are absolute, out of fold, on the folds of the tuning, and so a little too small. "
        "Repeats of one run differ by as much as no model can know. Intervals are 95 %: of errors "
        "over subjects, of repeats by chi-squared, of bounds Clopper-Pearson over subjects."
    )


def _percent(interval: Mapping[str, float | None] | None) -> str:
    if interval is None or interval["value"] is None:
        return UNKNOWN
    if interval["low"] is None or interval["high"] is None:
        return f"{interval['value']:.2g} %, no interval"
    return f"{interval['value']:.2g} % ({interval['low']:.2g} to {interval['high']:.2g})"


def _risk(risk: Mapping[str, Any] | None) -> str:
    if risk is None:
        return UNKNOWN
    low, high = (100 * limit for limit in risk["interval"])
    return f"{risk['exceeded']} of {risk['subjects']} ({low:.1f} to {high:.1f} %)"


def _ranges(bundle: Bundle, app: str) -> Iterator[str]:
    try:
        model = bundle.forecaster(app).model_at("volume").model
    except ModelError as error:
        yield f"The forecaster cannot be read: {error}."
        return
    ranges = model.range.numbers
    if not ranges:
        yield f"Ranges: {UNKNOWN}."
    for column, (low, high) in sorted(ranges.items()):
        name = plain_name(column)
        limits = value_range(name, natural(column, low), natural(column, high))
        yield f"- {quantity_title(name)}: {limits}"
