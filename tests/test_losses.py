"""`tacit.losses` against loops over records and positions, and trained on by a private loop."""

import pytest
import torch
from torch.nn import functional as F
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tacit import losses
from tacit.errors import InvalidInput
from tacit.training import make_private

B, T, V = 3, 5, 7


def case(seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, V, (B, T), generator=generator)
    labels[0, 3:] = labels[2] = -100
    return torch.randn(B, T, V, generator=generator), labels


def by_loop(logits, labels, shift, per):
    found = []
    for i in range(B):
        pairs = [(t, labels[i, t + shift]) for t in range(T - shift) if labels[i, t + shift] != -100]
        total = sum(float(F.cross_entropy(logits[i, t], label)) for t, label in pairs)
        found.append(total / (T - shift if per == "sequence" else max(1, len(pairs))))
    return torch.tensor(found)


@pytest.mark.parametrize("per", losses.PER)
@pytest.mark.parametrize("shift", [0, 1])
def test_each_record_has_the_loss_of_its_own_labels(per, shift):
    logits, labels = case()
    for loss in [losses.causal_lm] if shift else [losses.masked_lm, losses.token_classification, losses.seq2seq_lm]:
        assert torch.allclose(loss(logits, labels, per=per), by_loop(logits, labels, shift, per), atol=1e-6)


def test_padding_and_records_without_labels_have_no_gradient():
    logits, labels = case()
    losses.masked_lm(logits.requires_grad_(), labels).sum().backward()
    assert not logits.grad[labels == -100].any()
    assert logits.grad[labels != -100].any()


def test_classes_several_labels_and_real_targets():
    logits = case()[0][:, 0]
    classes, several = torch.tensor([1, 2, -100]), torch.rand(B, V)
    expected = F.cross_entropy(logits[:2], classes[:2], reduction="none")
    assert torch.allclose(losses.sequence_classification(logits, classes), torch.cat([expected, torch.zeros(1)]))
    several_losses = losses.sequence_classification(logits, several)
    assert torch.allclose(several_losses.mean(), F.binary_cross_entropy_with_logits(logits, several))
    for target in (several[:, 0], several[:, :1]):
        found = losses.sequence_classification(logits[:, :1], target)
        assert torch.allclose(found, (logits[:, 0] - several[:, 0]).square())


def test_other_shapes_and_words_are_refused_without_the_size_of_the_batch():
    logits, labels = case()
    for wrong in (
        lambda: losses.causal_lm(logits, labels[:, 1:]),
        lambda: losses.masked_lm(logits[:, 0], labels),
        lambda: losses.sequence_classification(logits, labels),
        lambda: losses.sequence_classification(logits[:, 0], labels),
        lambda: losses.sequence_classification(logits[:, 0], torch.rand(B)),
        lambda: losses.causal_lm(logits, labels, per="batch"),
    ):
        with pytest.raises(InvalidInput, match="must be") as error:
            wrong()
        assert f"{B}," not in str(error.value)


@pytest.mark.parametrize("per", losses.PER)
def test_a_private_loop_trains_on_them_with_every_check(per):
    torch.manual_seed(0)
    tokens = torch.randint(0, V, (60, T))
    labels = torch.where(torch.rand(60, T) < 0.3, -100, tokens)
    model = torch.nn.Sequential(torch.nn.Embedding(V, 4), torch.nn.Linear(4, V))
    loader = DataLoader(TensorDataset(tokens, labels), batch_size=4)
    parts = make_private(model, SGD(model.parameters(), lr=1.0), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=2)
    for _ in range(2):
        for x, y in parts.loader:
            losses.causal_lm(parts.model(x), y, per=per).backward()
            parts.optimizer.step()
    assert parts.facts["loss_rows"].how.value == "enforced"
    assert parts.ledger.standing.value == "proven"
