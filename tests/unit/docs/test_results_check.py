"""Which published results are older, in a small repository."""

import subprocess
from pathlib import Path

import results_check

GRAPH = """
stages:
  study:
    matrix:
      of: [one, two]
    cmd: python study.py ${item.of}
    deps: [study.py, "data/${item.of}"]
    outs: ["results/studies/${item.of}.json"]
"""


def test_a_result_is_older_once_what_it_depends_on_has_changed(tmp_path: Path) -> None:
    def commit(*names: str) -> None:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{path.read_text() if path.exists() else ''}# {name}\n")
        who = ("-c", "user.name=t", "-c", "user.email=t@t")
        for words in (("add", "-A"), (*who, "commit", "-qm", " ".join(names))):
            subprocess.run(["git", "-C", str(tmp_path), *words], check=True)

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "dvc.yaml").write_text(GRAPH)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/dvc.yaml").write_text("stages: {}")
    commit("study.py", "data/one", "data/two")
    commit("published/studies/one.json", "published/studies/two.json")
    commit("data/two", "README.md")
    wanted = results_check.stages(tmp_path)
    assert wanted == {f"studies/{n}.json": ["study.py", f"data/{n}"] for n in ("one", "two")}
    older = {
        name: results_check.commits_since(tmp_path, f"published/{name}", paths)
        for name, paths in wanted.items()
    }
    assert older["studies/one.json"] == []
    assert [line.split(" ", 1)[1] for line in older["studies/two.json"]] == ["data/two README.md"]


def test_results_of_the_project_have_stages() -> None:
    by_output = results_check.stages(results_check.PROJECT)
    assert "src/voxcast/evaluation" in by_output["headline"]
    assert all(paths for paths in by_output.values())
