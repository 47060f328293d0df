"""Losses of language and sequence models, one value for each record, as private training needs them.

A mean over the tokens of a batch divides by what all records count, so that no record's share is bounded. Here every
record has a loss of its own: the sum over its labelled tokens divided by a public length, or their mean.
"""

from torch import Tensor
from torch.nn import functional as F

from tacit import check

__all__ = ["causal_lm", "masked_lm", "seq2seq_lm", "sequence_classification", "token_classification"]

IGNORED = -100
"""Label of a position without a loss, as in `torch.nn.functional.cross_entropy`."""
PER = ("sequence", "token")


def causal_lm(logits: Tensor, labels: Tensor, *, ignore: int = IGNORED, per: str = "sequence") -> Tensor:
    """Loss of the next token at every position, shape (batch,): logits at t are compared with the label at t + 1.

        l_i = sum_t CE(logits_it, labels_i,t+1) / (T - 1)         per="sequence"
        l_i = sum_t CE(logits_it, labels_i,t+1) / max(1, n_i)     per="token"

    n_i is the record's own number of labelled positions. Per sequence a longer text weighs more, as in the mean over
    the tokens of a batch, and the divisor is the public length T - 1. Per token each text weighs the same; clipping
    bounds both alike. A record without labels has loss 0 and gradient 0, and still counts as a record.

    Args:
        logits: shape (batch, T, vocabulary).
        labels: token identifiers, shape (batch, T); usually the inputs, with `ignore` at padding.
        ignore: label of positions without a loss.
        per: "sequence" or "token".

    Raises:
        InvalidInput: shapes do not fit, or `per` is another word.

    Example:
        >>> import torch
        >>> logits = torch.zeros(2, 3, 5)
        >>> causal_lm(logits, torch.tensor([[0, 1, 2], [0, 1, -100]]))
        tensor([1.6094, 0.8047])
        >>> causal_lm(logits, torch.tensor([[0, 1, 2], [0, 1, -100]]), per="token")
        tensor([1.6094, 1.6094])
    """
    return _by_record(logits, labels, ignore, per, ahead=1)


def masked_lm(logits: Tensor, labels: Tensor, *, ignore: int = IGNORED, per: str = "sequence") -> Tensor:
    """Loss of the masked tokens of each record, shape (batch,): sum over its labelled positions / T, or their mean.

    Args:
        logits: shape (batch, T, vocabulary).
        labels: shape (batch, T), `ignore` where the token was not masked.
        ignore: label of positions without a loss.
        per: "sequence" (divides by the public length T) or "token" (by the record's own count); see `causal_lm`.

    Raises:
        InvalidInput: shapes do not fit, or `per` is another word.

    Example:
        >>> import torch
        >>> masked_lm(torch.zeros(1, 4, 5), torch.tensor([[-100, 3, -100, -100]]), per="token")
        tensor([1.6094])
    """
    return _by_record(logits, labels, ignore, per)


def token_classification(logits: Tensor, labels: Tensor, *, ignore: int = IGNORED, per: str = "sequence") -> Tensor:
    """Loss of the classes of each record's tokens, shape (batch,); see `masked_lm`.

    Args:
        logits: shape (batch, T, classes).
        labels: shape (batch, T), `ignore` at padding.
        ignore: label of positions without a loss.
        per: "sequence" or "token".

    Raises:
        InvalidInput: shapes do not fit, or `per` is another word.

    Example:
        >>> import torch
        >>> token_classification(torch.zeros(1, 2, 2), torch.tensor([[1, -100]]))
        tensor([0.3466])
    """
    return masked_lm(logits, labels, ignore=ignore, per=per)


def seq2seq_lm(logits: Tensor, labels: Tensor, *, ignore: int = IGNORED, per: str = "sequence") -> Tensor:
    """Loss of the decoder of an encoder-decoder model, whose logits at t are for the label at t; see `masked_lm`.

    Args:
        logits: shape (batch, T, vocabulary).
        labels: shape (batch, T), `ignore` at padding.
        ignore: label of positions without a loss.
        per: "sequence" or "token".

    Raises:
        InvalidInput: shapes do not fit, or `per` is another word.

    Example:
        >>> import torch
        >>> seq2seq_lm(torch.zeros(1, 2, 5), torch.tensor([[4, 1]]))
        tensor([1.6094])
    """
    return masked_lm(logits, labels, ignore=ignore, per=per)


def sequence_classification(logits: Tensor, labels: Tensor, *, ignore: int = IGNORED) -> Tensor:
    """Loss of one label for each record, shape (batch,), by the form of the labels.

    Cross-entropy for classes, shape (batch,); the mean binary cross-entropy for several labels at once, real-valued of
    the shape of the logits; the mean squared error for one real target, where there is one logit.

    Args:
        logits: shape (batch, classes).
        labels: classes, or real values.
        ignore: label of records without a loss.

    Raises:
        InvalidInput: shapes do not fit.

    Example:
        >>> import torch
        >>> sequence_classification(torch.zeros(2, 2), torch.tensor([0, -100]))
        tensor([0.6931, 0.0000])
    """
    if logits.dim() != 2:
        raise check.fail("logits", "of shape (batch, classes)", tuple(logits.shape[1:]), "Use token_classification.")
    if not labels.is_floating_point():
        if labels.shape != logits.shape[:1]:
            shape = tuple(labels.shape[1:])
            raise check.fail("labels", "one class for each record", shape, "Use masked_lm for tokens.")
        return F.cross_entropy(logits, labels, ignore_index=ignore, reduction="none")
    if labels.shape == logits.shape and logits.shape[1] > 1:
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1)
    if logits.shape[1] != 1 or labels.dim() > 2 or (labels.dim() == 2 and labels.shape[1] != 1):
        shapes = tuple(logits.shape[1:]), tuple(labels.shape[1:])
        raise check.fail("logits and labels", "one logit for a real label, or as many", shapes)
    return (logits.squeeze(1) - (labels.squeeze(1) if labels.dim() == 2 else labels)).square()


def _by_record(logits: Tensor, labels: Tensor, ignore: int, per: str, *, ahead: int = 0) -> Tensor:
    """Loss of each record where logits at t are for the label at t + `ahead`."""
    if logits.dim() != 3 or labels.shape != logits.shape[:2]:
        shapes = tuple(logits.shape[1:]), tuple(labels.shape[1:])
        raise check.fail("logits and labels", "of shapes (batch, T, classes) and (batch, T)", shapes)
    check.choice("per", per, PER)
    due, given = labels[:, ahead:], logits[:, : logits.shape[1] - ahead]
    losses = F.cross_entropy(given.transpose(1, 2), due, ignore_index=ignore, reduction="none").sum(1)
    return losses / (max(1, due.shape[1]) if per == "sequence" else (due != ignore).sum(1).clamp(min=1))
