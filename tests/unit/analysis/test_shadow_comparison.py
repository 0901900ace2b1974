"""Champion and challenger compared on what they answered, with planted differences."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.analysis.shadow_comparison import Run, runs_of, shadow_comparisons
from voxcast.files import sha256_of
from voxcast.images.image_identity import image_identity
from voxcast.records import TARGETS
from voxcast.serving.shadow_log import ShadowAnswer

DEFAULTS = {"segment": planted.PARAMETERS}
LATER, EARLIER = "2026-11-02T00:00:00+00:00", "2026-10-01T00:00:00+00:00"


def answer(image: str, ratio: float = 1.25, **changes: object) -> ShadowAnswer:
    champion = (8.0, 10.0, 12.0)
    challenger = (8.0 * ratio, 10.0 * ratio, 24.0)
    quantiles = dict.fromkeys(TARGETS, (champion, challenger))
    known = ShadowAnswer(
        "2026-11-01T00:00:00+00:00", ("3", "4"), "segment", "cpu", 1, 0, image, "", "", 0.95,
        quantiles, (False, False), (True, True),
    )  # fmt: skip
    return replace(known, **changes)


def run(image: str, used: float, started_at: str = LATER, **changes: object) -> Run:
    known = Run(
        image, "segment", "cpu", 1, 0, sha256_of(planted.PARAMETERS), "h", started_at,
        dict.fromkeys(TARGETS, used),
    )  # fmt: skip
    return replace(known, **changes)


def test_ratios_have_intervals_over_images_and_repeated_questions_count_once() -> None:
    rng = np.random.default_rng(0)
    ratios = 1.25 * np.exp(rng.normal(0, 0.02, 20))
    answers = [answer(f"i{n}", ratio) for n, ratio in enumerate(ratios)]
    (comparison,) = shadow_comparisons([*answers, *answers[:5] * 100])
    assert (comparison.answers, comparison.questions, comparison.images) == (520, 20, 20)
    median = comparison.median_ratio["cpu_s"]
    assert median.value == pytest.approx(math.exp(np.log(ratios).mean()))
    assert median.low < 1.25 < median.high
    assert median.low > 1.2
    assert median.high < 1.3
    assert comparison.upper_ratio["cpu_s"].value == pytest.approx(2.0)
    assert (comparison.runs, comparison.judgements) == (0, {})


def test_one_image_has_no_interval_and_unknown_images_are_one() -> None:
    (comparison,) = shadow_comparisons([answer("a"), answer("a", cpus=2)])
    assert (comparison.questions, comparison.images) == (2, 1)
    assert not comparison.median_ratio["cpu_s"].bounded
    (comparison,) = shadow_comparisons([answer(""), answer("")])
    assert (comparison.questions, comparison.images) == (2, 0)
    assert not comparison.median_ratio["cpu_s"].bounded


def test_pairs_of_versions_applications_and_quantiles_are_apart() -> None:
    answers = [
        answer("a"), answer("b", out_of_range=(True, False)), answer("a", app="tile"),
        answer("a", quantile=0.9), answer("a", versions=("3", "5")),
    ]  # fmt: skip
    comparisons = shadow_comparisons(answers)
    assert [(c.versions, c.app, c.quantile, c.questions) for c in comparisons] == [
        (("3", "5"), "segment", 0.95, 1), (("3", "4"), "segment", 0.9, 1),
        (("3", "4"), "tile", 0.95, 1), (("3", "4"), "segment", 0.95, 2),
    ]  # fmt: skip
    assert comparisons[-1].out_of_range == (0, 1, 0)


def test_later_runs_tell_who_was_nearer_and_whose_bound_held() -> None:
    rng = np.random.default_rng(1)
    images = [f"i{n}" for n in range(10)]
    used = 12.5 * np.exp(rng.normal(0, 0.01, 10))  # above the champion's bound of 12
    runs = [run(image, value) for image, value in zip(images, used, strict=True)]
    (comparison,) = shadow_comparisons([answer(image) for image in images], runs, DEFAULTS)
    judgement = comparison.judgements["runtime_s"]
    assert comparison.runs == 10
    assert judgement.champion_error.value == pytest.approx(np.log(used / 10).mean())
    assert judgement.challenger_error.value < 0.03
    assert judgement.gain.low > 0.1
    assert (judgement.champion_held, judgement.challenger_held) == (int((used <= 12).sum()), 10)
    low, high = judgement.challenger_interval
    assert (round(low, 3), high) == (0.692, 1.0)


@pytest.mark.parametrize(
    "other",
    [
        {"started_at": EARLIER}, {"started_at": "2026-11-02T00:00:00"}, {"started_at": "nan"},
        {"image": "b"}, {"app": "tile"}, {"device": "gpu"}, {"cpus": 2}, {"gpus": 1},
        {"parameters_sha256": sha256_of({"iterations": 5})},
    ],
)  # fmt: skip
def test_another_run_judges_nothing(other: dict) -> None:
    run_of_other = replace(run("a", 11.0), **other)
    (comparison,) = shadow_comparisons([answer("a")], [run_of_other], DEFAULTS)
    assert comparison.runs == 0


def test_an_answer_for_a_machine_is_judged_on_that_machine() -> None:
    for_machine = answer("a", host="elsewhere")
    for host, count in (("h", 0), ("elsewhere", 1)):
        (comparison,) = shadow_comparisons([for_machine], [run("a", 11.0, host=host)], DEFAULTS)
        assert comparison.runs == count


def test_runs_on_record_are_joined_by_the_characteristics_of_their_image() -> None:
    profiles, catalogue, characteristics = planted.history(3)
    profiles.loc[profiles["volume_id"] == "v0002", "outcome"] = "timeout"
    volumes = catalogue.merge(characteristics, on="volume_id")
    runs = runs_of(profiles.assign(host_id="h"), volumes)
    assert len(runs) == 4
    assert len({r.image for r in runs}) == 2
    row = volumes.iloc[0].to_dict()
    request = {name: row[name] for name in row if name not in ("file_size_bytes", "path")}
    asked = answer(image_identity(request), at=EARLIER, cpus=2)
    later = [replace(r, started_at=LATER) for r in runs]
    (comparison,) = shadow_comparisons([asked], later, DEFAULTS)
    assert comparison.runs == 1
    assert pd.isna(comparison.judgements["cpu_s"].gain.low)
