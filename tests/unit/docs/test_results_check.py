"""Which published results are older, in a small repository."""

import results_check


def test_results_of_the_project_have_stages() -> None:
    by_output = results_check.stages(results_check.PROJECT)
    assert "src/voxcast/evaluation" in by_output["headline"]
    assert all(paths for paths in by_output.values())
