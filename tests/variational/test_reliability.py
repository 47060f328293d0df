"""Reliability of predicted probabilities."""

import pytest
import torch

from tacit.errors import InvalidInput
from tacit.variational import calibration_error, reliability


def test_by_hand():
    chances = torch.tensor([0.05, 0.15, 0.15, 0.95])
    found = reliability(chances, torch.tensor([0, 1, 0, 1]))
    assert found.counts.tolist() == [1, 2, 1]
    assert found.confidence.tolist() == pytest.approx([0.05, 0.15, 0.95])
    assert found.frequency.tolist() == [0.0, 0.5, 1.0]
    assert found.error == pytest.approx((0.05 + 2 * 0.35 + 0.05) / 4)


def test_two_columns_are_one_probability_and_more_are_the_likeliest_class():
    chances, targets = torch.tensor([0.2, 0.7, 0.9]), torch.tensor([0, 1, 0])
    both = torch.stack([1 - chances, chances], 1)
    assert calibration_error(both, targets) == pytest.approx(calibration_error(chances, targets))
    three = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    found = reliability(three, torch.tensor([0, 0]))
    assert found.confidence.tolist() == pytest.approx([0.5, 0.8])
    assert found.frequency.tolist() == [1.0, 0.0]


def test_true_probabilities_are_reliable_and_sharpened_ones_are_not():
    """20,000 draws in 10 bins: an error of .03 is above 6 standard errors of the mean gap."""
    generator = torch.Generator().manual_seed(0)
    chances = torch.rand(20_000, generator=generator)
    targets = torch.bernoulli(chances, generator=generator).long()
    assert calibration_error(chances, targets) < 0.03
    assert calibration_error(torch.sigmoid(4 * torch.logit(chances)), targets) > 0.1


@pytest.mark.parametrize(
    ("chances", "targets", "bins"),
    [(torch.rand(3), torch.zeros(2), 10), (torch.rand(0), torch.zeros(0), 10), (torch.rand(2), torch.zeros(2), 0)],
)
def test_bad_input(chances, targets, bins):
    with pytest.raises(InvalidInput, match=r"(probabilities|bins) must be"):
        reliability(chances, targets, bins=bins)
