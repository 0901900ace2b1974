import pytest

torch = pytest.importorskip("torch")

from voxcast_apps.training import dnn_network  # noqa: E402


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


@pytest.mark.parametrize("network", ["fully_connected", "vgg16", "resnet50"])
@pytest.mark.parametrize("image_size", [32, 48])
def test_a_batch_becomes_one_number_for_each_class(network, image_size):
    model, _ = _weights(network, image_size=image_size, width=4, neurons=8)
    images = torch.empty(3, 3, image_size, image_size, device="meta")
    assert model(images).shape == (3, 10)


def test_layers_are_hidden_ones():
    sizes = {"image_size": 10, "channels": 1, "neurons": 5}
    assert _weights("fully_connected", layers=1, **sizes)[1] == 505 + 60
    assert _weights("fully_connected", layers=3, **sizes)[1] == 505 + 2 * 30 + 60
