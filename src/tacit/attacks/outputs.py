"""What a black-box model says about records, checked: its class probabilities and its confidence in the label."""

from __future__ import annotations

import numpy as np

from tacit import check
from tacit.attacks.base import Examples, Model

_LEAST = 1e-30


def class_probabilities(model: Model, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels) of the examples, shapes (n, classes) and (n,).

    Raises `InvalidInput` when lengths differ, labels are not classes of the model, or the model's answers are not
    probabilities (rows in [0, 1] that sum to 1 within 1e-3).
    """
    inputs, labels = examples
    labels = np.asarray(labels)
    probabilities = np.asarray(model(inputs), dtype=float)
    if probabilities.ndim != 2 or len(probabilities) != len(labels) or labels.ndim != 1:
        got = f"{probabilities.shape} for labels of shape {labels.shape}"
        raise check.fail("model output", "of shape (n, classes), one row for each label", got)
    total = probabilities.sum(axis=1)
    if not (np.all(probabilities >= 0) and np.all(np.abs(total - 1) <= 1e-3)):
        raise check.fail("model output", "class probabilities", "other numbers", "Apply a softmax to the logits.")
    classes = probabilities.shape[1]
    if labels.dtype.kind not in "iu" or np.any(labels < 0) or np.any(labels >= classes):
        raise check.fail("labels", f"integers in [0, {classes})", f"{labels.dtype} labels with others among them")
    return probabilities, labels


def logit_confidence(model: Model, examples: Examples) -> np.ndarray:
    """log(p_y / sum_{c != y} p_c), shape (n,): near normal over training runs (Carlini et al. 2022, Section V.B)."""
    probabilities, labels = class_probabilities(model, examples)
    rows = np.arange(len(labels))
    of_label = probabilities[rows, labels].copy()
    others = probabilities.copy()
    others[rows, labels] = 0.0
    return np.log(np.maximum(of_label, _LEAST)) - np.log(np.maximum(others.sum(axis=1), _LEAST))
