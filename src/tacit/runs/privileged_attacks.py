"""Membership attacks beyond query access: they need weights, public records or shadow models."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tacit import attacks, check
from tacit.attacks.base import joined
from tacit.clipping import FlatClip
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.gradients import ClippedSum
from tacit.runs.builders import loss_of, network_of
from tacit.runs.config import Config
from tacit.runs.methods.base import Progress
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import MODEL
from tacit.training import load_model

_ROWS_AT_ONCE = 512  # per-sample gradients of so many records fit into memory


def needs_classes(attack: str) -> InvalidInput:
    """The error for an attack on a regression that reads class probabilities."""
    return check.fail("attack", "loss_threshold for a regression", attack, "The others need class probabilities.")


@dataclass(frozen=True)
class PrivilegedAttacks:
    """An attacker of one run.

    Members are the training records. A public seed splits the held-out records into two halves: the non-members, and
    the attacker's own records.

    Attributes:
        config: of the run.
        dataset: of the run.
        folder: of the run; shadow models are kept in `audit/` there, and a stopped audit goes on from them.
        shadows: how many shadow models.
        on_progress: called with (stage, done, total).
    """

    config: Config
    dataset: Dataset
    folder: Path
    shadows: int
    on_progress: Progress

    def __call__(self, name: str, predict: attacks.Model, *, home: Path) -> attacks.Scores:
        """Scores of the attack called `name` on one run, whose model is `predict` and whose weights are in `home`.

        Raises `InvalidInput` where the run does not allow it.
        """
        check.choice("attack", name, attacks.PRIVILEGED_ATTACKS)
        if self.dataset.task == "regression":
            raise needs_classes(name)
        builders: dict[str, Callable[[], attacks.Attack]] = {
            attacks.GradientNorm.name: lambda: attacks.GradientNorm(lambda examples: self._norms(examples, home)),
            attacks.QuantileRegression.name: lambda: attacks.QuantileRegression(self.halves[1]),
            attacks.LikelihoodRatioOnline.name: lambda: attacks.LikelihoodRatioOnline(self.references),
            attacks.LikelihoodRatioOffline.name: lambda: attacks.LikelihoodRatioOffline(self.references),
            attacks.RelativeMembership.name: lambda: attacks.RelativeMembership(self.references, self.halves[1]),
        }
        return builders[name]()(predict, members=self.members, non_members=self.halves[0])

    @property
    def members(self) -> attacks.Examples:
        """The training records."""
        return self.dataset.x_train, self.dataset.y_train

    @cached_property
    def halves(self) -> list[attacks.Examples]:
        """The two halves of the held-out records: the non-members, and the attacker's own records."""
        labels = self.dataset.y_test
        check.that(len(labels) >= 4, "held-out records", "four at least to attack with half of them", len(labels))
        halves = np.array_split(np.random.default_rng(0).permutation(len(labels)), 2)
        return [(self.dataset.x_test[rows], labels[rows]) for rows in map(np.sort, halves)]

    @cached_property
    def recipe(self) -> attacks.Recipe:
        """The run's own settings, with the noise multiplier of its card."""
        config = self.config
        card = open_run(self.folder).own_card  # What the run was really trained with, where it says so.
        settings = check.instance("settings of card.json", card.get("settings", {}), dict, "a table")
        noise = settings.get("noise_multiplier", config.noise_multiplier)
        if not isinstance(noise, int | float):
            raise check.fail("noise", "the same at every step for attacks with shadow models", noise)
        shared = ("batch_size", "epochs", "learning_rate", "momentum", "clip_norm")
        optimizer, hidden = check.choice("optimizer", config.optimizer, ("adam", "sgd")), config.hidden
        given = {"optimizer": optimizer, "hidden": hidden if config.model == "mlp" else ()}
        return attacks.Recipe(
            **{name: getattr(config, name) for name in shared}, **given, noise_multiplier=float(noise)
        )

    @cached_property
    def references(self) -> attacks.References:
        """Shadow models on random halves of members and non-members, each record in half of them."""
        examples = joined(self.members, self.halves[0])
        included = attacks.half_splits(check.count("shadows", self.shadows, minimum=2), len(examples[1]))
        return attacks.train_stacked(
            examples,
            included,
            recipe=self.recipe,
            classes=len(self.dataset.classes),
            network=None if self.config.model in ("linear", "mlp") else self._network,
            folder=self.folder / "audit" / "references",
            on_progress=lambda done, total: self.on_progress("shadow models", done, total),
        ).references(included)

    def _network(self, seed: int) -> nn.Module:
        """A new network of the run with the initial weights of another seed."""
        return network_of(replace(self.config, init_seed=seed), self.dataset)

    def _norms(self, examples: attacks.Examples, home: Path) -> np.ndarray:
        """Gradient norms by the production path, so that they are those that training clipped."""
        if self.config.method != "gradient":
            name, hint = attacks.GradientNorm.name, "It needs a network's weights."
            raise check.fail("attack", "another one for this run", name, hint)
        model = network_of(self.config, self.dataset)
        load_model(model, home / MODEL)
        clipped, loss = ClippedSum(model, FlatClip(self.config.clip_norm)), loss_of(self.dataset, self.config)
        inputs, labels = (torch.as_tensor(values) for values in examples)
        parts = [slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(labels), _ROWS_AT_ONCE)]
        return torch.cat([clipped(loss, inputs[rows], labels[rows])[1] for rows in parts]).double().numpy()
