import pytest
import torch

from tacit.errors import InvalidInput
from tacit.models import convnet, linear, mlp


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_published_sizes():
    assert size(convnet()) == 26010
    assert size(mlp(123, 2, hidden=(16,))) == 123 * 16 + 16 + 16 * 2 + 2
    assert size(linear(784, 10)) == 7850


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 14, 29), (2, 15, 17)])
def test_the_network_takes_its_shape(shape):
    assert convnet(shape, 7)(torch.randn(3, *shape)).shape == (3, 7)


def test_initialisation_is_glorot_with_zero_biases():
    torch.manual_seed(0)
    model = mlp(300, 5, hidden=(200,))
    bound = (6 / 500) ** 0.5
    assert model[0].weight.abs().max() <= bound
    assert float(model[0].weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert not model[0].bias.any()


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: mlp(0, 2), "inputs"),
        (lambda: mlp(3, 2.5), "classes"),
        (lambda: mlp(3, 2, hidden=(0,)), "hidden"),
        (lambda: convnet((1, 13, 28)), "shape"),
    ],
)
def test_bad_sizes_are_refused(build, name):
    with pytest.raises(InvalidInput, match=f"{name} must be an integer"):
        build()
