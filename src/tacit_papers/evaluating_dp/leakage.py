"""One setting: models trained privately by one calibration at one epsilon, and what the three attacks find in them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from tacit import attacks, check
from tacit.attacks import Attack, Examples, Model, Recipe, Scores, Stack, roc, train_stacked
from tacit.attacks.base import class_probabilities
from tacit.noise import SeededStream
from tacit_papers.evaluating_dp import attributes
from tacit_papers.evaluating_dp.privacy import CLASSES, POISSON, PROTOCOL, SEED, WIDTHS, Folder, cost, split

FALSE_POSITIVE_RATES = (0.01, 0.05, 0.1)


def leakage(
    dataset: str,
    model: str,
    method: str,
    epsilon: float,
    *,
    records: int,
    batch_size: int,
    epochs: int,
    runs: int,
    shadows: int,
    engine: str = "eager",
    data_dir: Folder = None,
) -> dict[str, Any]:
    """Train `runs` models and attack each with `records` members and as many others.

    NC, AC and zCDP train on passes of disjoint batches, which their proofs need; RDP and the exact calibration on
    Poisson batches; "none" without privacy. Adam at .01, clip norm 1, no L2 penalty: in the paper's code it never
    reaches the loss. Noise is seeded, hence the models are not private.

    Args:
        dataset: "cifar100_pca50" or "purchase_standin".
        method: the calibration, a key of `METHODS`, or "none".
        epsilon: what the calibration is asked for, at delta 1e-5.
        records: members, and as many others.
        batch_size: records in a batch, the expected number for Poisson batches.
        epochs: passes over the members.
        runs: models that are trained and attacked.
        data_dir: folder of the data files.
        model: "lr" (softmax regression) or "nn" (256-256).
        shadows: shadow models of the attack by Shokri et al., trained without privacy; 0 leaves it out.
        engine: of `tacit.training.fit`; all give the same sums up to the order of additions.

    Returns "sigma", "add_remove" and "replace_one" (the exact epsilons; none of the three for "none"), and lists with
    one entry for each run of "train", "test", "attribute", and of both membership attacks the advantage ("yeom",
    "shokri"), PPV, TPR and FPR ("yeom_ppv", ...). "overlap" holds for k = 1, 2, ... how many members and how many
    others Yeom's attack flags in at least k of the runs, "first_two" how many of either it flags in both of the first
    two, "at_fpr" how many members every run finds at its threshold of a false positive rate.
    """
    parts = split(dataset, records, data_dir)
    members, others = parts["members"], parts["others"]
    spent = {} if method == "none" else cost(method, epsilon, epochs, batch_size / records)
    shadow = shadow_attack(dataset, model, records, batch_size, epochs, shadows, data_dir) if shadows else None
    columns = attributes.attributes(members[0], seed=SEED)
    rows, scores = [], []
    for seed in range(runs):
        if method == "none":
            target = open_model(members, model, batch_size, epochs, seed)
        else:
            sampling = "poisson" if method in POISSON else "shuffled"
            target = private_model(members, model, spent["sigma"], sampling, batch_size, epochs, seed, engine)
        scores.append(attacks.LossThreshold()(target, members=members, non_members=others))
        rows.append(_found(target, members, others, scores[-1], columns, shadow))
    return spent | {name: [row[name] for row in rows] for name in rows[0]} | _shared(scores)


def _shared(scores: Sequence[Scores]) -> dict[str, Any]:
    overlap = [(each.members, each.non_members) for each in attacks.overlaps(scores)[1:]]
    both = attacks.overlaps(scores[:2])[-1]
    flagged = {fpr: [members_at_fpr(run, fpr) for run in scores] for fpr in FALSE_POSITIVE_RATES}
    at_fpr = {str(fpr): int(np.all(runs, axis=0).sum()) for fpr, runs in flagged.items()}
    return {"overlap": overlap, "first_two": (both.members, both.non_members), "at_fpr": at_fpr}


def _found(
    target: Model,
    members: Examples,
    others: Examples,
    scores: Scores,
    columns: Sequence[attributes.Attribute],
    shadow: ShadowModels | None,
) -> dict[str, float]:
    guesses = [attributes.loss_posterior(target, members=members, non_members=others, attribute=one) for one in columns]
    found = {
        "train": _accuracy(target, members),
        "test": _accuracy(target, others),
        "attribute": attributes.mean_advantage(guesses),
        **_rates("yeom", scores),
    }
    if shadow is not None:
        found |= _rates("shokri", shadow(target, members=members, non_members=others))
    return found


def _rates(name: str, scores: Scores) -> dict[str, float]:
    fpr, tpr = attacks.error_rates(scores)
    return {name: tpr - fpr, f"{name}_ppv": attacks.ppv(scores), f"{name}_tpr": tpr, f"{name}_fpr": fpr}


def _accuracy(model: Model, examples: Examples) -> float:
    return float(np.mean(model(examples[0]).argmax(1) == examples[1]))


def open_model(members: Examples, model: str, batch_size: int, epochs: int, seed: int) -> Model:
    """The model "lr" or "nn" trained without privacy, as class probabilities.

    Args:
        members: training inputs and labels.
        model: "lr" or "nn".
        batch_size: records in a batch.
        epochs: passes over the records.
        seed: of the weights and the batches.
    """
    recipe = Recipe(hidden=WIDTHS[model], batch_size=batch_size, epochs=epochs)
    included = np.ones((1, len(members[1])), bool)
    return train_stacked(members, included, recipe=recipe, classes=CLASSES, seed=SEED + seed).model(0)


def private_model(
    members: Examples, model: str, noise: float, sampling: str, batch_size: int, epochs: int, seed: int, engine: str
) -> Model:
    """The same trained with clip norm 1 and that `noise` multiplier.

    Args:
        members: training inputs and labels.
        model: "lr" or "nn".
        noise: noise multiplier, > 0.
        sampling: "poisson" or "disjoint".
        batch_size: expected records in a batch.
        epochs: passes over the records.
        seed: of the weights, the batches and the noise.
        engine: of the per-sample gradients.
    """
    import torch
    from torch.nn.functional import cross_entropy

    from tacit import models
    from tacit.training import fit

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = members[0].shape[1]
        hidden = WIDTHS[model]
        network = models.mlp(width, CLASSES, hidden=hidden) if hidden else models.linear(width, CLASSES)
    fit(
        network,
        *members,
        loss=lambda outputs, targets: cross_entropy(outputs, targets, reduction="none"),
        optimizer=torch.optim.Adam(network.parameters(), lr=PROTOCOL["learning_rate"]),
        clip_norm=PROTOCOL["clip_norm"],
        noise_multiplier=noise,
        sampling=sampling,
        batch_size=batch_size,
        epochs=epochs,
        stream=SeededStream(seed),
        engine=engine,
    )

    def answer(inputs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return torch.softmax(network(torch.from_numpy(inputs)).double(), 1).numpy()

    return answer


@cache
def shadow_attack(
    dataset: str,
    model: str,
    records: int,
    batch_size: int,
    epochs: int,
    shadows: int,
    data_dir: Folder,
    attack_epochs: int = 100,
) -> ShadowModels:
    """The attack networks; every setting of one model meets the same.

    Args:
        dataset: its name.
        model: "lr" or "nn".
        records: training records of every shadow model.
        batch_size: records in a batch.
        epochs: passes over the records.
        shadows: number of shadow models.
        data_dir: folder of the data files.
        attack_epochs: passes that train the attack networks.
    """
    pool = split(dataset, records, data_dir)["pool"]
    splits = shadow_splits(pool[1], models=shadows, records=records, seed=SEED)
    included = np.zeros((shadows, len(pool[1])), bool)
    for row, (inside, _) in zip(included, splits, strict=True):
        row[inside] = True
    recipe = Recipe(hidden=WIDTHS[model], batch_size=batch_size, epochs=epochs)
    stack = train_stacked(pool, included, recipe=recipe, classes=CLASSES, seed=SEED)

    def part(rows: np.ndarray) -> Examples:
        return pool[0][rows], pool[1][rows]

    return ShadowModels(
        [(stack.model(k), part(inside), part(outside)) for k, (inside, outside) in enumerate(splits)],
        epochs=attack_epochs,
    )


def members_at_fpr(scores: Scores, fpr: float) -> np.ndarray:
    """Members, boolean of shape (n,), flagged at the lowest threshold whose FPR is below `fpr` in (0, 1].

    Example:
        >>> members_at_fpr(Scores("loss", [2.0, 1.0], [0.0, 1.5], 1.0), 0.5)
        array([ True, False])
    """
    fpr = check.probability("fpr", fpr, open_low=True)
    rates, _, thresholds = roc(scores)
    return scores.members >= thresholds[np.flatnonzero(rates < fpr)[-1]]


_HIDDEN = (64, 64)
_CLASSES_TOGETHER = 10  # attack networks trained as one stack


class ShadowModels(Attack):
    """Score the probability of "member" that the attack network of the record's class gives to the model's output.

    Every shadow model k was trained on A_k and not on B_k. Its probabilities on both, labelled in and out, train one
    network for each class: classes-64-64-2 with ReLU, Adam at .01, batches of 100, 100 epochs, L2 penalty 1e-6, as in
    the evaluation of Jayaraman & Evans 2019. A record is flagged iff the probability is above 1/2; it is 1/2 in a
    class without members or without non-members among the shadow models' records.

    Args:
        shadows: (model, its training examples A_k, other examples B_k), five in the source.
        epochs: of the attack networks.
        seed: of their first weights and batches.

    Raises:
        InvalidInput: there is no shadow model, or an argument breaks its rule.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> inside, outside = [(draw.uniform(size=20), np.zeros(20, int)) for _ in range(2)]
        >>> model = lambda inputs: np.column_stack([inputs, 1 - inputs])
        >>> attack = ShadowModels([(model, inside, outside)], epochs=1)
        >>> attack.score(model, inside).shape
        (20,)
    """

    name: ClassVar[str] = "shadow_models"

    def __init__(self, shadows: Sequence[tuple[Model, Examples, Examples]], *, epochs: int = 100, seed: int = 0):
        if not shadows:
            raise check.fail("shadows", "one shadow model at least", 0)
        parts = [_training_rows(*shadow) for shadow in shadows]
        outputs, labels, inside = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._stacks: dict[int, tuple[Stack, int]] = {}
        known = [c for c in range(outputs.shape[1]) if {True, False} <= set(np.unique(inside[labels == c]).tolist())]
        recipe = Recipe(
            hidden=_HIDDEN, batch_size=100, epochs=check.count("epochs", epochs), learning_rate=0.01, l2_penalty=1e-6
        )
        for start in range(0, len(known), _CLASSES_TOGETHER):
            together = known[start : start + _CLASSES_TOGETHER]
            of_class = np.stack([labels == c for c in together])
            stack = train_stacked(
                (outputs, inside.astype(np.int64)), of_class, recipe=recipe, classes=2, seed=seed + start
            )
            self._stacks |= {c: (stack, place) for place, c in enumerate(together)}

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """The attack networks' probability of membership."""
        probabilities, labels = class_probabilities(model, examples)
        scores = np.full(len(labels), 0.5)
        for c, (stack, place) in self._stacks.items():
            rows = np.flatnonzero(labels == c)
            if len(rows):
                scores[rows] = stack.model(place)(probabilities[rows].astype(np.float32))[:, 1]
        return scores

    def threshold(self, member_scores: np.ndarray) -> float:
        """The next number above 1/2."""
        return float(np.nextafter(0.5, 1.0))


def shadow_splits(
    pool: np.ndarray, *, models: int = 5, records: int, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows (A_k, B_k) for each shadow: two disjoint samples of `records` each, stratified by the pool's labels.

    Samples of different shadows overlap.

    Args:
        pool: labels of the records to sample from, shape (n,).
        models: number of shadow models, >= 1.
        records: size of each sample.
        seed: of the samples.

    Raises:
        InvalidInput: the pool holds fewer than 2 `records`, or a number breaks its rule.

    Example:
        >>> [(len(inside), len(outside)) for inside, outside in shadow_splits(np.tile([0, 1], 10), models=2, records=6)]
        [(6, 6), (6, 6)]
    """
    from sklearn.model_selection import train_test_split

    labels = np.asarray(pool)
    records = check.count("records", records)
    if len(labels) < 2 * records:
        raise check.fail("records", f"at most half of the pool of {len(labels)}", records)
    splits = []
    for k in range(check.count("models", models)):
        inside, outside = train_test_split(
            np.arange(len(labels)), train_size=records, test_size=records, stratify=labels, random_state=seed + k
        )
        splits.append((inside, outside))
    return splits


def _training_rows(model: Model, inside: Examples, outside: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    outputs, labels = zip(class_probabilities(model, inside), class_probabilities(model, outside), strict=True)
    membership = np.repeat([True, False], [len(inside[1]), len(outside[1])])
    return np.concatenate(outputs).astype(np.float32), np.concatenate(labels), membership
