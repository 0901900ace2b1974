"""A project of a laboratory: the configuration of this repository, a champion, and images."""

import shutil
from pathlib import Path

import yaml

import planted
from champions import write_champion
from small_head import write_head

ROOT = Path(__file__).parents[2]
SEGMENT = {
    "version": "1", "argv": ["cp", "{image}", "{out}/copy"], "module": None,
    "parameters": planted.PARAMETERS, "packages": [],
}  # fmt: skip


def lab(folder: Path) -> Path:
    """Write the project, with ``head.nii.gz`` and a dataset ``bids`` of three subjects."""
    shutil.copy2(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "conf", folder / "conf")
    text = yaml.safe_dump({"defaults": ["_base@segment", "_self_"], "segment": SEGMENT})
    (folder / "conf/app/segment.yaml").write_text(text)
    write_champion(folder, 40)
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=80)
    for subject, edge in (("01", 80), ("02", 90), ("03", 100)):
        anat = folder / "bids" / f"sub-{subject}" / "anat"
        anat.mkdir(parents=True)
        write_head(anat / f"sub-{subject}_T1w.nii.gz", spacing_mm=2.5, edge=edge)
    description = '{"Name": "heads", "BIDSVersion": "1.10.0"}'
    (folder / "bids/dataset_description.json").write_text(description)
    return folder
