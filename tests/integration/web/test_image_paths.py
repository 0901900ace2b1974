"""Paths that a question may name: regular files below the allowed folders, and nothing else."""

import os
import socket
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException

from voxcast.web.images import opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "scan.nii").write_bytes(b"inside")
    (tmp_path / "secret.nii").write_bytes(b"outside")
    (tmp_path / "images-of-others").mkdir()
    (tmp_path / "images-of-others" / "scan.nii").write_bytes(b"outside")
    return folder


def content(root: Path, name: str) -> bytes:
    with opened([root.resolve()], name) as file:
        return file.read()


def test_files_below_a_folder_are_opened(root: Path) -> None:
    assert content(root, "sub/scan.nii") == b"inside"
    assert content(root, str(root / "sub" / "scan.nii")) == b"inside"
    assert content(root, "sub/../sub/./scan.nii") == b"inside"
    (root / "link.nii").symlink_to("sub/scan.nii")  # as DataLad has them
    assert content(root, "link.nii") == b"inside"


def test_a_folder_that_is_reached_by_a_link_is_allowed_by_either_name(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(root)
    for name in ("sub/scan.nii", f"{tmp_path}/alias/sub/scan.nii", f"{root}/sub/scan.nii"):
        assert content(tmp_path / "alias", name) == b"inside"


def test_whatever_else_is_named_the_answer_is_the_same(root: Path, tmp_path: Path) -> None:
    (root / "out.nii").symlink_to(tmp_path / "secret.nii")
    (root / "nowhere.nii").symlink_to(tmp_path / "nothing.nii")
    (root / "folder").symlink_to(tmp_path)
    (root / "self").symlink_to("self")
    (root / "null").symlink_to("/dev/null")
    os.mkfifo(root / "pipe.nii")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(root / "socket.nii"))
    names = [
        "nothing.nii", "../secret.nii", "../nothing.nii", str(tmp_path / "secret.nii"),
        str(tmp_path / "nothing.nii"), "sub/../../secret.nii", "out.nii", "nowhere.nii",
        "folder/secret.nii", "self", "null", "pipe.nii", "socket.nii", "sub", ".", "", "/", "..",
        "../images-of-others/scan.nii", f"{root}-of-others/scan.nii", "/etc/passwd",
        "/proc/self/environ", "~/scan.nii", "sub/scan.nii\0.gz", "x" * 5000, "sub/scan.nii/",
        "\udcff", "file:///etc/passwd", "%2e%2e/secret.nii", "sub\\..\\..\\secret.nii",
    ]  # fmt: skip
    details = set()
    for name in names:
        if name == "sub/scan.nii/":  # the same file, as some shells complete it
            assert content(root, name) == b"inside"
            continue
        with pytest.raises(HTTPException) as refused:
            opened([root.resolve()], name)
        assert refused.value.status_code == 404
        details.add(refused.value.detail)
    assert len(details) == 1
    listener.close()


def test_without_folders_no_path_is_read(root: Path) -> None:
    with pytest.raises(HTTPException):
        opened([], str(root / "sub" / "scan.nii"))


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between resolving and opening, a folder is replaced by a link to another one."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "scan.nii").write_bytes(b"outside")
    system_open = os.open

    def replacing_open(path, *arguments, **options):
        (root / "sub").rename(tmp_path / "moved")
        (root / "sub").symlink_to(tmp_path / "elsewhere")
        return system_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", replacing_open)
    with pytest.raises(HTTPException):
        opened([root], "sub/scan.nii")
