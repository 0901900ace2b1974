import numpy as np
import pytest

from voxcast_apps.training import load_images


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
def test_images_have_the_requested_shape_and_follow_the_seed(dataset):
    training, held_out = load_images(dataset, 200, 12, seed=3)
    assert training.pixels.shape == (200, 1, 12, 12)
    assert held_out.pixels.shape == (40, 1, 12, 12)
    assert training.pixels.dtype == np.float32
    assert set(training.classes) == set(range(10))
    again, _ = load_images(dataset, 200, 12, seed=3)
    other, _ = load_images(dataset, 200, 12, seed=4)
    np.testing.assert_array_equal(training.pixels, again.pixels)
    assert not np.array_equal(training.pixels, other.pixels)


def test_digits_repeat_when_needed_but_never_the_held_out_ones():
    training, held_out = load_images("digits", 3000, 8, seed=1)
    seen = {image.tobytes() for image in training.pixels}
    assert len(seen) == 1797 - 359
    assert len(held_out.classes) == 359
    assert not seen & {image.tobytes() for image in held_out.pixels}


def test_digits_at_native_size_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    training, _ = load_images("digits", 1438, 8, seed=1)
    originals = {image.tobytes() for image in (load_digits().images / 8 - 1).astype(np.float32)}
    assert {image.tobytes() for image in training.pixels} <= originals


def test_resizing_keeps_the_mean_of_a_smooth_image():
    training, _ = load_images("synthetic", 5000, 24, seed=1)
    small, _ = load_images("synthetic", 5000, 8, seed=1)
    for digit in range(10):
        large_mean = training.pixels[training.classes == digit].mean()
        assert large_mean == pytest.approx(small.pixels[small.classes == digit].mean(), abs=0.15)
