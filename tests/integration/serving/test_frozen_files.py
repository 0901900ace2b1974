"""What outlives a release: the code in registered models, and the hashes of their files."""

import hashlib
import re
from pathlib import Path

import pytest

from voxcast.errors import ModelError
from voxcast.files import sha256_folder
from voxcast.serving.bundle import INDEX, Bundle
from voxcast.tracking.registry import PREDICTOR


def test_a_registered_predictor_imports_modules_that_never_move() -> None:
    modules = re.findall(r"^from (voxcast[\w.]*)", PREDICTOR.read_text(), re.MULTILINE)
    assert modules == [
        "voxcast.errors", "voxcast.serving.bundle", "voxcast.serving.machines",
        "voxcast.serving.prediction_service", "voxcast.serving.rows",
    ]  # fmt: skip


def test_content_cannot_move_between_files_under_one_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    recorded = sha256_folder(tmp_path)
    (tmp_path / "b").unlink()
    (tmp_path / "a").write_bytes(b"1b\x002")
    assert sha256_folder(tmp_path) != recorded


def test_the_index_is_compared_as_it_is_read(bundle: Bundle) -> None:
    sha256 = hashlib.sha256((bundle.folder / INDEX).read_bytes()).hexdigest()
    assert Bundle.load(bundle.folder, sha256).apps == bundle.apps
    with pytest.raises(ModelError, match="is not the file that was registered"):
        Bundle.load(bundle.folder, "0" * 64)
