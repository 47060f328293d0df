import pytest
import torch

from tacit.errors import InvalidInput
from tacit.models import MeanOfWords, Recommender, convnet, linear, mlp


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_published_sizes():
    assert size(convnet()) == 26010
    assert size(mlp(123, 2, hidden=(16,))) == 123 * 16 + 16 + 16 * 2 + 2
    assert size(linear(784, 10)) == 7850
    assert size(MeanOfWords()) == 10_000 * 16 + 16 * 16 + 16 + 16 * 2 + 2
    assert size(Recommender(943, 1682)) == (943 + 1682) * 15 + 25 * 5 + 5


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


def test_padding_counts_in_the_mean_only_on_request():
    torch.manual_seed(0)
    literal, masked = MeanOfWords(50, count_padding=True), MeanOfWords(50)
    masked.load_state_dict(literal.state_dict())
    review = torch.tensor([[0, 0, 7, 8]])
    table = literal.words.weight
    assert torch.allclose(literal(review), literal.body((2 * table[0] + table[7] + table[8])[None] / 4), atol=1e-6)
    assert torch.allclose(masked(review), masked.body((table[7] + table[8])[None] / 2), atol=1e-6)
    marked = torch.tensor([[0, 0, 1, 7, 8]])
    assert torch.allclose(masked(marked), masked(review), atol=1e-6)
    longer = torch.tensor([[0, 0, 0, 0, 7, 8]])
    assert torch.allclose(masked(longer), masked(review), atol=1e-6)
    assert not torch.allclose(literal(longer), literal(review), atol=1e-6)
    assert torch.equal(masked(torch.zeros(1, 4, dtype=torch.int64)), masked.body(torch.zeros(1, 16)))


def test_the_recommender_by_hand():
    torch.manual_seed(0)
    model = Recommender(4, 6, 3)
    product = model.product_user.weight[2] * model.product_item.weight[5]
    expected = model.head(torch.cat([product, model.user.weight[2], model.item.weight[5]]))
    assert torch.allclose(model(torch.tensor([[2, 5]]))[0], expected, atol=1e-6)


def test_tables_start_small():
    assert MeanOfWords(5000).words.weight.abs().max() <= 0.05
    assert float(MeanOfWords(5000).words.weight.detach().std()) == pytest.approx(0.05 / 3**0.5, rel=0.02)
