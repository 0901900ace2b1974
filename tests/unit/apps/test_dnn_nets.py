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
