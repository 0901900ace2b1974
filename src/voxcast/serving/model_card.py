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
    from collections.abc import Mapping

    from voxcast.serving.bundle import Bundle, Promotion, ServedApp

UNKNOWN = "not recorded"
_TARGET_TITLES = {"cpu_s": "CPU time", "runtime_s": "wall time", "peak_rss_bytes": "memory"}


def model_card(bundle: Bundle) -> str:
    """Return the card of a bundle; one that is not registered yet has no number."""
    origin = bundle.origin
    title = f"voxcast, version {bundle.version}" if bundle.version else "voxcast"
    apps = "\n".join(_application(bundle, served) for served in bundle.apps.values())
    return f"""\
# {title}

It predicts CPU time (`cpu_s`), wall time (`runtime_s`) and memory (`peak_rss_bytes`) of a run of
an application on an image, as a median and bounds, for each configuration. It is for requests to a
scheduler. Research use: it tells nothing about a patient.

- made for: `{origin.promoted or UNKNOWN}`
- replaced version: {origin.previous or "none"}
- commit of the project: {origin.git_commit or UNKNOWN}

## Limits

- An answer holds for the version of the application and the kinds of machine named below; another
  machine is told apart by its id, and not calibrated before runs on it are on record.
- Out of the ranges below an answer is an extrapolation: it says so in `out_of_range`, and is not
  called calibrated. Ranges of textures are not checked.
- Bounds hold for subjects like those that were measured. `docs/method.md` has the rest.

{apps}"""


def _application(bundle: Bundle, served: ServedApp) -> str:
    promotion, evidence = served.promotion, served.promotion.evidence
    calibrated = "calibrated" if promotion.calibrated else "not calibrated"
    meaning = REASONS.get(promotion.reason, UNKNOWN)
    allocations = served.measured or [(c.device, c.cpus, c.gpus) for c in served.configurations]
    configurations = ", ".join(
        f"{device}, {counted(cpus, 'CPU')}, {counted(gpus, 'GPU')}"
        for device, cpus, gpus in allocations
    )
    rows = "\n".join(f"| {' | '.join(_errors(target, evidence))} |" for target in TARGETS)
    try:
        ranges = bundle.forecaster(served.name).model_at("volume").model.range.numbers
        limits = "\n".join(_range(column, *ends) for column, ends in sorted(ranges.items()))
    except ModelError as error:
        limits = f"The forecaster cannot be read: {error}."
    return f"""\
## {served.name}

- version measured: {promotion.app_version or UNKNOWN}
- default parameters: `{json.dumps(served.parameters, sort_keys=True)}`
- configurations measured: {configurations}
- machines measured: {"; ".join(served.host_classes) or UNKNOWN}
- family: {promotion.family}, `{json.dumps(promotion.params, sort_keys=True)}`
- law of sizes alone: {_law(evidence.get("law", {}))}
- characteristics seen: {", ".join(served.characteristics) or "none, the header alone"}
- learned from: {_data(promotion)}
- training table: SHA-256 `{promotion.table_sha256}`
- forecaster: SHA-256 `{served.forecaster_sha256}`
- software: {", ".join(evidence.get("software", ())) or UNKNOWN}
- mean log error of CPU time and memory, out of fold: {promotion.cv_objective:.4f}
- bounds at {100 * promotion.upper_quantile:g} %: {calibrated}, {promotion.promoted_at}
- how it was judged: {promotion.reason} ({meaning}): {promotion.detail or UNKNOWN}
- compared with the champion before it: {_comparison(evidence.get("comparison"))}

### Errors and coverage

| target | mean error | median error | repeats of one run | subjects above the bound |
| --- | --- | --- | --- | --- |
{rows}

Errors are absolute, out of fold, on the folds of the tuning, and so a little too small. Repeats of
one run differ by as much as no model can know. Intervals are 95 %: of errors over subjects, of
repeats by chi-squared, of bounds Clopper-Pearson over subjects.

### Measured ranges

{limits or UNKNOWN}
"""


def _data(promotion: Promotion) -> str:
    training = promotion.evidence.get("training", {})
    sets = training.get("image_sets", {}).items()
    listed = ", ".join(f"{name or 'without a name'} ({n} runs)" for name, n in sets) or UNKNOWN
    dates = UNKNOWN
    if training.get("first_run_at"):
        dates = f"{training['first_run_at'][:10]} to {training['last_run_at'][:10]}"
    share = 100 * promotion.noisy_runs / promotion.runs if promotion.runs else 0.0
    return (
        f"{counted(promotion.runs, 'run')} of {counted(promotion.subjects, 'subject')}, "
        f"{share:.0f} % measured beside other work; image sets: {listed}; measured: {dates}"
    )


def _law(words: Mapping[str, str]) -> str:
    return "; ".join(f"{_TARGET_TITLES[target]} {law}" for target, law in words.items()) or UNKNOWN


def _comparison(comparison: Mapping[str, Any] | None) -> str:
    if not comparison:
        return UNKNOWN
    subjects = counted(int(comparison["gain"]["subjects"]), "held-out subject")
    parts = ", ".join(
        f"{name} {_interval(comparison[name], '.4f')}"
        for name in ("challenger", "champion", "gain")
    )
    return f"mean log error over {subjects}: {parts}"


def _interval(interval: Mapping[str, float | None] | None, form: str, unit: str = "") -> str:
    if interval is None or interval["value"] is None:
        return UNKNOWN
    value = f"{interval['value']:{form}}{unit}"
    if interval["low"] is None or interval["high"] is None:
        return f"{value}, no interval"
    return f"{value} ({interval['low']:{form}} to {interval['high']:{form}})"


def _errors(target: str, evidence: Mapping[str, Any]) -> tuple[str, ...]:
    median = evidence.get("cross_validation", {}).get(f"{target}/median_ape")
    risk = evidence.get("risk_at_upper_quantile", {}).get(target)
    above = UNKNOWN
    if risk is not None:
        low, high = (100 * limit for limit in risk["interval"])
        above = f"{risk['exceeded']} of {risk['subjects']} ({low:.1f} to {high:.1f} %)"
    return (
        _TARGET_TITLES[target],
        _interval(evidence.get("errors_percent", {}).get(target), ".2g", " %"),
        UNKNOWN if median is None else f"{median:.2g} %",
        _interval(evidence.get("noise_floor_percent", {}).get(target), ".2g", " %"),
        above,
    )


def _range(column: str, low: float, high: float) -> str:
    name = plain_name(column)
    limits = value_range(name, natural(column, low), natural(column, high))
    return f"- {quantity_title(name)}: {limits}"
