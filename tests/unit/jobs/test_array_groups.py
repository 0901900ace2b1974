"""Arrays of a recommendation: complete, and within the hard limits."""

import re
from pathlib import Path

import numpy as np

from voxcast.allocation.offers import HardLimits, Policy
from voxcast.allocation.recommendation import ImagePredictions, Recommendation
from voxcast.allocation.site import Cluster, NodeType, Partition, Prices, Waiting
from voxcast.jobs.arrays import write_array_jobs
from voxcast.records import Configuration

POLICY = Policy("balanced", 0.95, 0.0, 2.0)


def recommended(runtimes_s: list[float], waiting: Waiting, limits: HardLimits) -> Recommendation:
    site = Cluster(
        "c", (NodeType("n", 8, 64 * 2**30, 0, Prices(), "p"),), (Partition("p", waiting=waiting),),
        walltime_step_s=1.0,
    )  # fmt: skip
    images = [
        ImagePredictions(
            f"{n}.nii.gz",
            [{
                "app": "a", "out_of_range": "", "calibrated": True,
                "runtime_s_median": 0.9 * seconds, "runtime_s_upper": seconds,
                "peak_rss_bytes_median": 2e9, "peak_rss_bytes_upper": 3e9,
            }],
        )
        for n, seconds in enumerate(runtimes_s)
    ]  # fmt: skip
    candidates = site.candidates([Configuration("cpu", 1)])
    return Recommendation.of(site, POLICY, limits, candidates, images)


def written(folder: Path, recommendation: Recommendation) -> dict[str, list[str]]:
    """Return the images by the time that their array requests."""
    found = {}
    for script in write_array_jobs(recommendation, folder):
        text = script.read_text()
        images = [
            Path(line).name.partition(".")[0] for line in text.splitlines() if line[:1] == "/"
        ]
        assert f"#SBATCH --array=1-{len(images)}\n" in text
        (time,) = re.findall("--time=(.*)", text)
        found.setdefault(time, []).extend(images)
    return found


def test_similar_requests_share_one_and_others_do_not(tmp_path: Path) -> None:
    recommendation = recommended([100, 110, 120, 9000, 50], Waiting(), HardLimits())
    assert written(tmp_path, recommendation) == {
        "02:30:00": ["3"], "00:02:00": ["2", "1", "0", "4"]
    }  # fmt: skip


def test_no_request_exceeds_the_deadline_for_the_sake_of_another(tmp_path: Path) -> None:
    # A job of 100 s waits 200 s; 120 s would need 360 s in all, and have no request.
    recommendation = recommended([100, 110, 120, 100], Waiting(2.0), HardLimits(330.0))
    assert written(tmp_path, recommendation) == {"00:01:50": ["1"], "00:01:40": ["3", "0"]}


def test_no_array_is_longer_than_slurm_allows(tmp_path: Path) -> None:
    runtimes_s = np.linspace(100, 120, 2500).tolist()
    found = written(tmp_path, recommended(runtimes_s, Waiting(), HardLimits()))
    assert sorted(int(n) for names in found.values() for n in names) == list(range(2500))
    lengths = [re.findall("--array=1-(.*)", p.read_text()) for p in tmp_path.iterdir()]
    assert max(int(length) for (length,) in lengths) <= 1000
