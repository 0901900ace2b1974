"""Data and networks of the training application."""

import numpy as np
import pytest

from voxcast_apps.training import dnn_network, load_images


def arrays(dataset, samples, image_size, seed):
    """Return pixels and classes of the training images, and of the held-out ones."""
    names = {"dataset": dataset, "samples": samples, "image_size": image_size, "seed": seed}
    both = load_images(names)
    return [[part.numpy() for part in images.tensors] for images in both]


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
def test_images_have_the_requested_shape_and_follow_the_seed(dataset):
    (pixels, classes), (held_out, _) = arrays(dataset, 200, 12, seed=3)
    assert pixels.shape == (200, 1, 12, 12)
    assert held_out.shape == (40, 1, 12, 12)
    assert pixels.dtype == np.float32
    assert set(classes) == set(range(10))
    (again, _), _ = arrays(dataset, 200, 12, seed=3)
    (other, _), _ = arrays(dataset, 200, 12, seed=4)
    np.testing.assert_array_equal(pixels, again)
    assert not np.array_equal(pixels, other)


def test_digits_repeat_when_needed_but_never_the_held_out_ones():
    (pixels, _), (held_out, _) = arrays("digits", 3000, 8, seed=1)
    seen = {image.tobytes() for image in pixels}
    assert len(seen) == 1797 - 359
    assert len(held_out) == 359
    assert not seen & {image.tobytes() for image in held_out}


torch = pytest.importorskip("torch")


def _weights(network, **sizes):
    defaults = {"image_size": 224, "layers": 1, "neurons": 4096, "width": 64, "channels": 3}
    with torch.device("meta"):  # shapes only: nothing is allocated
        model = dnn_network(network, **{**defaults, **sizes})
    return model, sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    ("network", "published"), [("vgg16", 138_365_992), ("resnet50", 25_557_032)]
)
def test_at_width_64_the_networks_have_the_published_number_of_weights(network, published):
    assert _weights(network, classes=1000)[1] == published
