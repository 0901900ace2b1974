"""Hostile images against a service in a process of its own, which stays alive and small."""

from __future__ import annotations

import gzip
import http.client
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import nibabel
import numpy as np
import pytest

import nifti_bytes
import small_disk
from live_service import LiveService, live_service

MAX_UPLOAD = 48 * 2**20
ABOVE_IDLE = 300_000_000
LIMIT_S = 300  # of a request; far above what it takes, on a busy machine too
LARGE = (3, 32767, 32767, 32767, 1, 1, 1, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of temporary files of the service."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def live(
    champion_project: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveService]:
    log = tmp_path_factory.mktemp("log") / "service.log"
    with live_service(
        champion_project, log, folder=folder, max_upload_bytes=MAX_UPLOAD
    ) as service:
        yield service
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return nifti_bytes.head(tmp_path_factory.mktemp("head"))


def ask(live: LiveService, content: bytes) -> httpx.Response:
    return httpx.post(f"{live.url}/images?app=segment", content=content, timeout=LIMIT_S)


def attacks(head: bytes) -> dict[str, bytes]:
    """Return files that are refused."""
    change = nifti_bytes.changed
    shaped = np.random.default_rng(0).integers(0, 99, (6, 7, 8)).astype(np.uint8)
    rgb = np.zeros((6, 7, 8), [("R", "u1"), ("G", "u1"), ("B", "u1")])
    second = nifti_bytes.of_array(shaped, kind=nibabel.Nifti2Image)
    packed = gzip.compress(head)
    return {
        "huge dimensions": change(head, dim=LARGE),
        "huge dimensions, compressed": gzip.compress(change(head, dim=LARGE)),
        "huge dimensions of NIfTI-2": second[:16] + struct.pack("<3q", 3, 2**62, 2) + second[40:],
        "a vector of FreeSurfer's": change(head, dim=(3, -1, 1, 1, 1, 1, 1, 1), glmin=2**31 - 1),
        "more voxels than there are": change(head, dim=(3, 600, 600, 600, 1, 1, 1, 1)),
        "the same, compressed": gzip.compress(change(head, dim=(3, 600, 600, 600, 1, 1, 1, 1))),
        "negative dimension": change(head, dim=(3, -32, 32, 32, 1, 1, 1, 1)),
        "dimension of 0": change(head, dim=(3, 32, 0, 32, 1, 1, 1, 1)),
        "no axes": change(head, dim=(0, 32, 32, 32, 1, 1, 1, 1)),
        "nine axes": change(head, dim=(9, 32, 32, 32, 1, 1, 1, 1)),
        "four axes": change(head, dim=(4, 16, 32, 32, 2, 1, 1, 1)),
        "truncated": head[:-1],
        "truncated header": head[:200],
        "truncated gzip": packed[: len(packed) // 2],
        "gzip with a wrong checksum": packed[:-8] + bytes(4) + packed[-4:],
        "gzip of nothing": gzip.compress(b""),
        "the first bytes of gzip": packed[:3],
        "zero bytes": b"",
        "one byte": b"\0",
        "a PNG": b"\x89PNG\r\n\x1a\n" + bytes(400),
        "a text": b"#!/bin/sh\necho no image\n" * 40,
        "a gzipped text": gzip.compress(b"#!/bin/sh\n" * 100),
        "a wrong magic": change(head, magic=b"nope"),
        "huge dimensions with a wrong size of the header": gzip.compress(
            change(head, dim=LARGE, sizeof_hdr=349)
        ),
        "colours": nifti_bytes.of_array(rgb),
        "complex numbers": nifti_bytes.of_array(shaped.astype(np.complex64)),
        "an unknown type": change(head, datatype=1792 + 5),
        "a type of no voxels": change(head, datatype=0),
        "NaN only": nifti_bytes.of_array(np.full((6, 7, 8), np.nan, np.float32)),
        "a constant": nifti_bytes.of_array(np.full((6, 7, 8), 7, np.int16)),
        "beyond single precision": nifti_bytes.of_array(shaped.astype(np.float64) * 1e306),
        "an infinite affine": change(head, srow_x=(float("inf"), 0.0, 0.0, 0.0), codes=(0, 1)),
        "an affine of NaN": change(head, srow_x=(float("nan"), 0.0, 0.0, 0.0), codes=(0, 1)),
        "a singular affine": change(head, srow_x=(0.0, 0.0, 0.0, 0.0), codes=(0, 1)),
        "a nearly singular affine": change(head, srow_x=(1e-5, 4.0, 0.0, 0.0), codes=(0, 1)),
        "no affine": change(head, codes=(0, 0)),
        "voxels behind the end": change(head, vox_offset=1e6),
        "voxels behind the end of all": change(head, vox_offset=3e38),
        "voxels at infinity": change(head, vox_offset=float("-inf")),
        "voxels nowhere": change(head, vox_offset=float("nan")),
        "an extension without end": change(
            head, extension=(1, 0, 0, 0), extension_size=(2**31 - 16, 4), vox_offset=6e7
        ),
        "noise of which no mask fits into memory": nifti_bytes.of_array(
            (np.random.default_rng(1).random((340, 340, 340)) < 0.9).astype(np.uint8)
        ),
        "zeros of 1.1 GB behind the voxels": nifti_bytes.zeros_behind(head, 1_150_000_000),
    }  # fmt: skip


def test_hostile_files_are_refused_with_a_reason_and_little_memory(
    live: LiveService, head: bytes, folder: Path
) -> None:
    for _ in range(3):  # what is imported and allocated once, is
        assert ask(live, head).status_code == 200
    idle_bytes = live.rest()
    for name, content in attacks(head).items():
        answer = ask(live, content)
        assert answer.status_code == 400, (name, answer.text)
        detail = answer.json()["detail"]
        assert len(detail) > 10, name
        assert str(folder) not in detail, name
        assert "Error" not in detail, (name, detail)  # foreseen: no name of an exception
        assert live.peak_bytes - idle_bytes <= ABOVE_IDLE, name
    assert ask(live, head).status_code == 200
    assert live.rest() - idle_bytes <= 100_000_000


def test_strange_files_that_have_an_answer_get_it(live: LiveService, head: bytes) -> None:
    change = nifti_bytes.changed
    some = np.random.default_rng(0).normal(100, 20, (20, 20, 20)).astype(np.float32)
    some[3:6, 4, 5] = np.nan
    for name, content in {
        "some NaN": nifti_bytes.of_array(some),
        "no scaling": change(head, scl_slope=float("nan")),
        "a slope of 0, which NIfTI takes as none": change(head, scl_slope=0.0),
        "a negative slope": change(head, scl_slope=-2.0, scl_inter=5.0),
        "two gzip members": gzip.compress(head[:9000]) + gzip.compress(head[9000:]),
        "zeros behind": head + bytes(999),
        "a wrong size of the header": change(head, sizeof_hdr=349),
        "a wrong number of bits": change(head, bitpix=8),
        "the magic of a pair, in one file": change(head, magic=b"ni1\0"),
    }.items():
        assert ask(live, content).status_code == 200, name


def stored_bytes(live: LiveService, folder: Path) -> int:
    """Return what the service stores in files, with and without a name."""
    named = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    unnamed = 0
    for link in Path(f"/proc/{live.process.pid}/fd").iterdir():
        try:
            if str(folder) in str(link.readlink()):
                unnamed += link.stat().st_size
        except OSError:
            continue
    return named + unnamed


@pytest.mark.parametrize("states_its_length", [True, False])
def test_a_stream_of_2_gb_is_cut_at_the_limit(
    live: LiveService, folder: Path, head: bytes, states_its_length: bool
) -> None:
    assert ask(live, head).status_code == 200
    idle_bytes, stored = live.rest(), stored_bytes(live, folder)
    host = live.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=LIMIT_S)
    connection.putrequest("POST", "/images?app=segment")
    size = 2 * 10**9
    name = "Content-Length" if states_its_length else "Transfer-Encoding"
    connection.putheader(name, str(size) if states_its_length else "chunked")
    connection.endheaders()
    most = 0
    block = bytes(10**6)

    def send(data: bytes) -> None:
        framed = data if states_its_length else b"%x\r\n%b\r\n" % (len(data), data)
        connection.send(framed)

    try:
        for number in range(size // len(block)):
            send(block)
            if number % 50 == 0:
                most = max(most, stored_bytes(live, folder) - stored)
        if not states_its_length:
            connection.send(b"0\r\n\r\n")
    except OSError:  # the service has hung up, which it may
        pass
    else:
        assert connection.getresponse().status == 413
    connection.close()
    assert most <= MAX_UPLOAD + 2**20
    assert live.peak_bytes - idle_bytes <= ABOVE_IDLE
    assert ask(live, head).status_code == 200
    assert stored_bytes(live, folder) <= stored + 2**20


def test_a_full_disk_is_told(champion_project: Path, tmp_path: Path, head: bytes) -> None:
    large = head + bytes(4 * 2**20)
    with (
        small_disk.mounted(tmp_path / "disk") as disk,
        live_service(champion_project, tmp_path / "log", folder=disk) as service,
    ):
        answer = ask(service, large)
        assert answer.status_code == 507, answer.text
        assert "full" in answer.json()["detail"]
        assert ask(service, gzip.compress(head)).status_code == 200


def test_readers_end_with_a_service_that_is_killed(
    champion_project: Path, tmp_path: Path, head: bytes
) -> None:
    with live_service(champion_project, tmp_path / "log") as service:
        assert ask(service, head).status_code == 200
        readers = service.process.children()
        assert readers
        service.process.kill()
        deadline = time.monotonic() + 30
        while any(reader.is_running() for reader in readers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(reader.is_running() for reader in readers)
