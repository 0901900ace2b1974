"""One reading of a volume: its hash and its coarse grid."""

import gzip
import hashlib
import itertools
import logging
import subprocess
import sys
from pathlib import Path

import ants
import nibabel
import numpy as np
import pytest

from voxcast.errors import ImageError
from voxcast.images import volume
from voxcast.images.catalogue import build_catalogue
from voxcast.images.header import log_itk_refusals
from voxcast.images.sources import refresh
from voxcast.images.summary import Grids
from voxcast.images.volume import Volume, strides

AFFINE = np.diag([-0.7, 0.7, 1.5, 1.0])


def _head(shape: tuple[int, ...] = (90, 70, 50), dtype: str = "int16") -> np.ndarray:
    """An ellipsoid with texture in noisy air."""
    rng = np.random.default_rng(3)
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
    inside = (grid**2).sum(0) < 0.6
    values = np.abs(rng.normal(0, 20, shape)) + inside * (700 + 200 * grid[0])
    return values.astype(dtype)


def _save(path: Path, array: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return path


def test_nan_becomes_zero_and_nan_only_is_refused(tmp_path: Path) -> None:
    array = _head(dtype="float32")
    array[:10] = np.nan
    array[11] = np.inf
    coarse = Volume.open(_save(tmp_path / "a.nii.gz", array)).coarse(90)
    assert np.isfinite(coarse.data).all()
    assert (coarse.data[:10] == 0).all()
    path = _save(tmp_path / "b.nii.gz", np.full((8, 8, 8), np.nan, np.float32))
    with pytest.raises(ImageError, match=r"b\.nii\.gz.*NaN only"):
        Volume.open(path).coarse()


def test_constant_is_refused_but_not_when_the_coarse_grid_missed_it(tmp_path: Path) -> None:
    array = np.zeros((20, 20, 20), np.uint8)
    with pytest.raises(ImageError, match="constant"):
        Volume.open(_save(tmp_path / "a.nii.gz", array)).coarse()
    array[1, 1, 1] = 1
    assert Volume.open(_save(tmp_path / "b.nii.gz", array)).coarse(10).data.max() == 0


def test_a_range_beyond_single_precision_is_refused(tmp_path: Path) -> None:
    tiny, wide, bright = (_head(dtype="float64") for _ in range(3))
    tiny *= 1e-45
    wide = (wide - 500) * 6e35
    bright[1, 1, 1:5] = 1.7e308  # none of them on the coarse grid
    for array in (tiny, wide, bright):
        with pytest.raises(ImageError, match=r"a\.nii.*single precision"):
            Volume.open(_save(tmp_path / "a.nii", array)).read()


def test_voxel_hash_depends_on_content(tmp_path: Path) -> None:
    array = _head()
    packed = Volume.open(_save(tmp_path / "a.nii.gz", array)).read().voxel_sha256
    assert Volume.open(_save(tmp_path / "b.nii", array)).read().voxel_sha256 == packed
    moved = AFFINE.copy()
    moved[0, 3] = 5
    assert Volume.open(_save(tmp_path / "c.nii", array, moved)).read().voxel_sha256 != packed
    array[0, 0, 0] += 1
    assert Volume.open(_save(tmp_path / "d.nii", array)).read().voxel_sha256 != packed


DTYPES = ("uint8", "int16", ">i2", "uint16", "int32", "float32", ">f4", "float64", "int64")
SCALINGS = ((1.0, 0.0), (0.37, -11.5), (-2.5e-3, 1e6))


def _whole_array(path: Path, points: int) -> tuple[np.ndarray, str]:
    """Return coarse grid and hash as computed from the uncompressed file as a whole."""
    layout = Volume.open(path)
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    flat = np.frombuffer(raw, layout.dtype, layout.header.voxels, layout.offset_bytes)
    array = flat.reshape(layout.header.shape, order="F")
    steps = strides(layout.header.shape, points)
    values = array[tuple(slice(None, None, step) for step in steps)].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        values = (values * layout.slope + layout.intercept).astype(np.float32)
    coarse = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    affine = (layout.affine.round(4) + 0.0).tolist()
    facts = (layout.header.shape, layout.dtype.str, layout.slope, layout.intercept, affine)
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(array.ravel(order="K").data)
    return coarse, digest.hexdigest()


def _volume(path: Path, shape: tuple[int, ...], dtype: str, scaling: tuple[float, float]) -> Path:
    rng = np.random.default_rng(len(shape) + shape[0])
    stored = np.abs(rng.normal(60, 30, shape)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        stored.flat[::7] = np.nan
        stored.flat[3::11] = np.inf
    header = nibabel.Nifti1Header(endianness=">" if dtype.startswith(">") else "<")
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    header.set_sform(AFFINE, code=1)
    header.set_slope_inter(*scaling)
    header["vox_offset"] = 352
    raw = header.binaryblock + bytes(4) + stored.tobytes(order="F")
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("block_bytes", [1, 100, 5000, volume.BLOCK_BYTES])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_blocks_give_the_coarse_grid_and_the_hash_of_the_whole_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, block_bytes: int
) -> None:
    monkeypatch.setattr(volume, "BLOCK_BYTES", block_bytes)
    shapes = ((13, 11, 9), (1, 17, 5), (40, 3, 1), (5, 1, 23))
    some = itertools.islice(itertools.product(shapes, DTYPES, SCALINGS), 0, None, 11)
    for shape, dtype, scaling in some:
        path = _volume(tmp_path / f"a{suffix}", shape, dtype, scaling)
        for points in (4, 64):
            expected, sha256 = _whole_array(path, points)
            reading = Volume.open(path).read(points)
            assert reading.voxel_sha256 == sha256
            assert reading.coarse.data.tobytes() == expected.tobytes()
            assert reading.coarse.data.flags.c_contiguous


def test_several_gzip_members_and_padding_are_read(tmp_path: Path) -> None:
    plain = _volume(tmp_path / "a.nii", (20, 20, 20), "int16", (1.0, 0.0)).read_bytes()
    path = tmp_path / "b.nii.gz"
    path.write_bytes(gzip.compress(plain[:5000]) + gzip.compress(plain[5000:] + bytes(3000)))
    packed, unpacked = Volume.open(path), Volume.open(tmp_path / "a.nii")
    assert packed.read().voxel_sha256 == unpacked.read().voxel_sha256


@pytest.mark.parametrize("read", [Volume.coarse, Volume.read])
def test_damage_anywhere_is_reported(tmp_path: Path, read) -> None:
    path = _volume(tmp_path / "a.nii.gz", (60, 50, 40), "int16", (1.0, 0.0))
    whole = path.read_bytes()
    for position in (2000, len(whole) // 2, len(whole) - 6):  # the last is in the checksum
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(ImageError, match="damaged"):
            read(Volume.open(path))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageError, match="truncated"):
        read(Volume.open(path))


def test_more_voxels_than_allowed_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = _volume(tmp_path / "a.nii", (20, 20, 20), "int16", (1.0, 0.0))
    for read in (Volume.coarse, Volume.read):
        with pytest.raises(ImageError, match=r"8000 voxels \(20 x 20 x 20\), at most 7999"):
            read(Volume.open(path), max_voxels=7999)
        read(Volume.open(path), max_voxels=8000)


def test_a_small_file_that_declares_a_large_volume_takes_little_memory(tmp_path: Path) -> None:
    """A real process reads 36 million voxels of eight bytes, more than it keeps, in little."""
    path = tmp_path / "bomb.nii.gz"
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.float64)
    header.set_data_shape((330, 330, 331))
    header.set_sform(AFFINE, code=1)
    header["vox_offset"] = 352
    with gzip.open(path, "wb", compresslevel=9) as stream:
        stream.write(header.binaryblock + bytes(4))
        for plane in range(331):
            stream.write(np.full(330**2, plane % 100, np.float64).tobytes())
    assert path.stat().st_size < 10**6
    code = (
        "import resource, sys; from voxcast.images.volume import Volume\n"
        "import nibabel\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "Volume.open(sys.argv[1]).read()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
    )
    assert 1024 * int(answer.stdout) < 8 * 330 * 330 * 331 / 2


ROTATION = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
VOXELS = np.random.default_rng(0).integers(0, 90, (9, 8, 7))


def _write(
    path: Path,
    dtype: str = "int16",
    slope: float | None = None,
    shear: float = 0.0,
    qform_code: int = 0,
    nifti: type[nibabel.Nifti1Image] = nibabel.Nifti1Image,
) -> Path:
    affine = np.eye(4)
    affine[:3, :3] = ROTATION @ [[1, shear, 0], [0, 1, 0], [0, 0, 1]] @ np.diag([1, 0.8, 1.4])
    image = nifti(VOXELS.astype(dtype), affine, dtype=dtype)
    image.set_sform(affine, 1)
    image.set_qform(affine, qform_code, strip_shears=True)
    image.header.set_slope_inter(slope, None if slope is None else 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.to_filename(path)
    return path


@pytest.mark.parametrize(
    ("choices", "refusal"),
    [
        *(({"dtype": dtype}, "") for dtype in ("uint8", "int32", "uint32", "float64")),
        ({"dtype": "int64"}, "its voxels are int64; save it as float32"),
        ({"dtype": "uint64"}, "its voxels are uint64; save it as float32"),
        ({"dtype": "int64", "slope": 0.5}, ""),  # scaled to float as it is read
        ({"shear": 0.3}, "its axes are not at right angles"),
        ({"shear": 0.001}, "its axes are not at right angles"),
        ({"shear": 5e-5}, ""),
        ({"shear": 0.3, "qform_code": 1}, ""),  # the qform is taken, which has no shears
        ({"nifti": nibabel.Nifti2Image}, "it is NIfTI-2; save it as NIfTI-1"),
    ],
)
def test_a_volume_is_refused_where_ants_refuses_it(
    tmp_path: Path, choices: dict[str, object], refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = _write(tmp_path / "a.nii", **choices)
    answer = Volume.open(path).itk_refusal  # it is accepted
    assert answer.startswith(refusal)
    log_itk_refusals([(path, answer)])
    if refusal:
        with pytest.raises((RuntimeError, KeyError)):
            ants.image_read(str(path))
        (message,) = caplog.messages
        assert message.startswith(f"{path}: applications built on ITK, such as ANTs, refuse it: ")
    else:
        assert not answer
        assert ants.image_read(str(path)).shape == VOXELS.shape
        assert not caplog.messages


def test_a_set_of_images_has_one_line_for_each_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bids = tmp_path / "bids"
    for subject in range(1, 8):
        _write(
            bids / f"sub-0{subject}/anat/sub-0{subject}_T1w.nii.gz",
            dtype="int64" if subject in (2, 3, 5) else "int16",
            shear=0.2 if subject in (6, 7) else 0.0,
        )
    with caplog.at_level(logging.WARNING, "voxcast.images.header"):
        assert build_catalogue(refresh(bids), tmp_path / "out", Grids(32, 8)) == 0
    messages = [message for message in caplog.messages if "ITK" in message]
    assert len(messages) == 2
    refusers = "applications built on ITK, such as ANTs, refuse them: "
    assert f"sub-02_T1w.nii.gz and 2 others: {refusers}its voxels are int64" in messages[0]
    assert "sub-06_T1w.nii.gz and 1 other: " in messages[1]
    assert f"{refusers}its axes are not at right angles" in messages[1]
