"""NIfTI files as bytes, whole or with a field of their header changed."""

import gzip
import io
import struct

import nibabel
import numpy as np

from small_head import write_head

# Offset and type of fields of a NIfTI-1 header (nifti1.h).
FIELDS = {
    "sizeof_hdr": (0, "<i"), "dim": (40, "<8h"), "datatype": (70, "<h"), "bitpix": (72, "<h"),
    "vox_offset": (108, "<f"), "scl_slope": (112, "<f"), "scl_inter": (116, "<f"),
    "glmin": (144, "<i"), "codes": (252, "<2h"), "srow_x": (280, "<4f"), "magic": (344, "<4s"),
    "extension": (348, "<4B"), "extension_size": (352, "<2i"),
}  # fmt: skip


def head(folder, **write):
    """Return a small head as the bytes of a ``.nii`` file."""
    path = folder / "head.nii"
    write_head(path, **write)
    return path.read_bytes()


def changed(content, **values):
    """Return a file with fields of its header set."""
    damaged = bytearray(content)
    for name, value in values.items():
        offset, kind = FIELDS[name]
        struct.pack_into(kind, damaged, offset, *(value if isinstance(value, tuple) else (value,)))
    return bytes(damaged)


def of_array(array, affine=None, kind=nibabel.Nifti1Image):
    """Return an array as the bytes of a ``.nii`` file."""
    return kind(array, np.eye(4) if affine is None else affine).to_bytes()


def zeros_behind(content, count_bytes):
    """Return a compressed file with zeros behind it, without holding them."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as packed:
        packed.write(content)
        block = bytes(2**22)
        for _ in range(count_bytes // len(block)):
            packed.write(block)
    return stream.getvalue()
