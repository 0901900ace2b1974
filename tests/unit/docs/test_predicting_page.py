"""The page about asking the model names every column of its signature."""

import re

from page_blocks import PROJECT
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import TARGETS
from voxcast.serving.signature import INPUT_TYPES, OUTPUT_TYPES, QUANTILES

PAGE = PROJECT / "docs" / "predicting.md"


def test_every_column_is_in_the_tables() -> None:
    parts = PAGE.read_text(encoding="utf-8").split("## Columns of ")[1:]
    request, answer = (part.split("\n## ")[0] for part in parts)
    names = [
        set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ([^|]*) \|", part, re.M))))
        for part in (request, answer)
    ]
    assert names[0] == set(INPUT_TYPES) - set(CHARACTERISTICS) | {"foreground_voxels"}
    quantiles = {f"{target}_{name}" for target in TARGETS for name in QUANTILES}
    assert names[1] == set(OUTPUT_TYPES) - quantiles | {*TARGETS} | {f"_{n}" for n in QUANTILES}
