"""The runs of a GPU campaign: every one on the GPU and on the CPU, one after the other."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import app_version
from voxcast.apps.parameters import merged_parameters
from voxcast.files import sha256_of
from voxcast.records import Cell, Configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.campaigns.gpu.prepared_inputs import Inputs, Source

TRAINING, NETWORK = "dnn_train", "tile_segment_network"
REPEATS = 3  # of the first few, in all
REPEATED_POINTS, REPEATED_VOLUMES = 4, 3
SEED = 1

# 3 networks, 2 image sizes, 2 batch sizes, 2 widths. Synthetic images: they need no scikit-learn.
_COMMON = {"dataset": "synthetic", "samples": 256, "epochs": 3, "layers": 4, "neurons": 512}
_WIDTHS: dict[str, tuple[dict[str, int], ...]] = {
    "fully_connected": ({"neurons": 512}, {"neurons": 2048}),
    "vgg16": ({"width": 8}, {"width": 24}),
    "resnet50": ({"width": 8}, {"width": 24}),
}
_IMAGE_SIZES, _BATCH_SIZES = (32, 64), (32, 128)


def training_points() -> list[dict[str, Any]]:
    """Return the parameters of `dnn_train` that are tried, in a fixed shuffled order."""
    points = [
        {
            **_COMMON,
            "network": network,
            "image_size": image_size,
            "batch_size": batch_size,
            **width,
        }
        for network, widths in _WIDTHS.items()
        for image_size, batch_size, width in itertools.product(_IMAGE_SIZES, _BATCH_SIZES, widths)
    ]
    return sorted(points, key=lambda point: sha256_of([SEED, point]))


def gpu_cells(
    inputs: Inputs, configurations: Sequence[Configuration], host_class: str
) -> list[Cell]:
    """Return the cells in the order to run them.

    Applications alternate, and so do CPU and GPU, in an order reversed from pair to pair: a
    campaign cut short is balanced, and a drift of the machine affects both devices. Repeats come
    last.
    """
    apps = inputs.apps
    points: list[tuple[dict[str, Any], Source | None]] = []
    networks: list[tuple[dict[str, Any], Source | None]] = []
    if TRAINING in apps:
        points = [(merged_parameters(apps[TRAINING], p), None) for p in inputs.training]
    if NETWORK in apps:
        networks = [(merged_parameters(apps[NETWORK], {}), volume) for volume in inputs.volumes]
    first_runs = [*_spread((TRAINING, points), (NETWORK, networks))]
    repeated_runs = [
        *_spread((TRAINING, points[:REPEATED_POINTS]), (NETWORK, networks[:REPEATED_VOLUMES]))
    ]
    versions = {name: app_version(apps[name]) for name in (TRAINING, NETWORK) if name in apps}
    cells = []
    rounds = [(0, first_runs), *((repeat, repeated_runs) for repeat in range(1, inputs.repeats))]
    for repeat, turns in rounds:
        for turn, (name, parameters, volume) in enumerate(turns):
            pair = [c for c in configurations if c.device in apps[name].devices]
            cells += [
                Cell(
                    app=name,
                    app_version=versions[name],
                    parameters=parameters,
                    volume_id=volume.volume_id if volume else "",
                    subject=volume.subject if volume else "",
                    configuration=configuration,
                    scale="full_scale",
                    repeat=repeat,
                    host_class=host_class,
                )
                for configuration in (pair if turn % 2 == 0 else reversed(pair))
            ]
    return cells


def _spread(
    *groups: tuple[str, Sequence[tuple[dict[str, Any], Source | None]]],
) -> Iterable[tuple[str, dict[str, Any], Source | None]]:
    """Merge the groups so that each is spread evenly over the whole."""
    placed = [
        ((n + 0.5) / len(items), name, parameters, volume)
        for name, items in groups
        for n, (parameters, volume) in enumerate(items)
    ]
    for _, name, parameters, volume in sorted(placed, key=lambda placement: placement[:2]):
        yield name, parameters, volume
