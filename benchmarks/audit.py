"""The goals of attacks and audits, each measured by one command.

    python benchmarks/audit.py leak           what attacks find in an overfitted model, private or not
    python benchmarks/audit.py shadow-attacks the same by attacks with shadow models
    python benchmarks/audit.py shadows        stacked shadow models against one by one
    python benchmarks/audit.py white-box      empirical over certified epsilon through the production path
    python benchmarks/audit.py black-box      the same from 200 final models
    python benchmarks/audit.py coverage       how often each estimator exceeds the truth
    python benchmarks/audit.py broken         trainers that do not do what they claim

Figures are printed, and kept in benchmarks/results/audit.json under the name of the command.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_coverage import coverage
from audit_shadows import shadows
from torch import nn
from torch.nn import functional as F

from benchmarks.estimators import (
    ReleaseDifferences,
    audit_normal,
    gaussian_family,
    guesses_refute,
    many_runs,
    noise_family,
    normal_points,
    refute_family,
)
from benchmarks.worst_case import WorstCase
from tacit import attacks, audit
from tacit.accounting import accountant
from tacit.mechanisms import Gaussian
from tacit.models import linear, mlp
from tacit.runs.canaries import CanaryLane
from tacit.serialization import write_text
from tacit.training import fit
from tacit_papers.evaluating_dp import attributes
from tacit_papers.evaluating_dp.leakage import ShadowModels, members_at_fpr, shadow_splits

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "audit.json"
CACHE = ROOT / "runs" / "benchmark-shadows"
DELTA, WIDTHS, SEED, MODELS = 1e-5, (256, 256), 21312, 32
SEEDS = tuple(range(SEED, SEED + 5))
Examples = tuple[np.ndarray, np.ndarray]
Figures = Iterator[tuple[str, dict[str, Any]]]


@contextmanager
def cpu(spent: dict[str, float], name: str) -> Iterator[None]:
    """Adds the CPU seconds of the block to `spent`."""
    start = time.process_time()
    yield
    spent[name] = spent.get(name, 0.0) + time.process_time() - start


def cifar(data_dir: str | None, seed: int = SEED) -> tuple[Examples, dict[str, np.ndarray]]:
    """All 60000 rows, each of norm 1, and the rows of the target's training and test sets and of the rest."""
    from sklearn.model_selection import train_test_split

    from tacit.data import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load("cifar100_pca50", data_dir=data_dir)
    x = np.concatenate([data.x_train, data.x_test]).astype(np.float32)
    y = np.concatenate([data.y_train, data.y_test]).astype(np.int64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    train, rest = train_test_split(np.arange(len(y)), train_size=10000, stratify=y, random_state=seed)
    test, pool = train_test_split(rest, train_size=10000, stratify=y[rest], random_state=seed)
    return (x, y), {"train": train, "test": test, "pool": pool}


def part(data: Examples, rows: np.ndarray) -> Examples:
    """Some of the rows."""
    return data[0][rows], data[1][rows]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One value per example."""
    return F.cross_entropy(outputs, targets, reduction="none")


def answers(model: nn.Module) -> attacks.Model:
    """A network as attacks see it."""

    def predict(inputs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return torch.softmax(model(torch.from_numpy(inputs)).double(), 1).numpy()

    return predict


def leak(data_dir: str | None) -> Figures:
    """Jayaraman & Evans's setting: 10000 records, 2x256 network, Adam .01, batch 200, 100 epochs."""
    data, rows = cifar(data_dir)
    members, others = part(data, rows["train"]), part(data, rows["test"])
    target = overfitted(data, rows)
    accuracy = {name: hits(target, examples) for name, examples in (("train", members), ("test", others))}
    yield "accuracy", accuracy
    for name in attacks.ATTACKS:
        yield name, told(attacks.attack_named(name), target, members, others)
    yield (
        "quantile_regression",
        told(attacks.QuantileRegression(part(data, rows["pool"][:10000])), target, members, others),
    )
    chosen = attributes.attributes(members[0], seed=SEED)
    for each in (attributes.loss_posterior, attributes.confusion_posterior):
        found = [each(target, members=members, non_members=others, attribute=one) for one in chosen]
        yield each.__name__, {"attribute_advantage": attributes.mean_advantage(found)}
    private = private_runs(members, others)
    yield "private", private | {"accuracy_loss": 1 - private["test"] / accuracy["test"]}


def shadow_attacks(data_dir: str | None) -> Figures:
    """Attacks with shadow models on targets of five seeds, each with records of its own: every figure by seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for seed in SEEDS:
        for name, figures in attacks_of_seed(data_dir, seed):
            for quantity, value in figures.items():
                found.setdefault(name, {}).setdefault(quantity, []).append(value)
            yield name, found[name] | {"seeds": list(SEEDS[: len(next(iter(found[name].values())))])}


def attacks_of_seed(data_dir: str | None, seed: int) -> Figures:
    """Attacks with shadow models on the target of one seed."""
    data, rows = cifar(data_dir, seed)
    members, others = part(data, rows["train"]), part(data, rows["test"])
    target = overfitted(data, rows, seed)
    yield "loss_threshold", told(attacks.LossThreshold(), target, members, others)
    both = np.concatenate([rows["train"], rows["test"]])
    included = attacks.half_splits(MODELS, len(both), seed=seed)
    with cpu(spent := {}, "seconds"):
        stack = attacks.train_stacked(
            part(data, both),
            included,
            recipe=attacks.Recipe(hidden=WIDTHS, precision="bfloat16"),
            classes=100,
            seed=seed,
            folder=CACHE / str(seed),
            on_progress=lambda done, total: print("shadow models", done, total, flush=True),
        )
    yield "training", {"models": MODELS, "cpu": spent["seconds"]}
    known = stack.references(included)
    for attack in (
        attacks.LikelihoodRatioOnline(known),
        attacks.LikelihoodRatioOffline(known),
        attacks.RelativeMembership(known, part(data, rows["pool"][:5000])),
    ):
        yield attack.name, told(attack, target, members, others)
    with cpu(spent, "shokri"):
        attack = shokri(data, rows["pool"], seed)
    yield "shadow_models", told(attack, target, members, others) | {"cpu_training": spent["shokri"]}


def overfitted(data: Examples, rows: dict[str, np.ndarray], seed: int = SEED) -> attacks.Model:
    """The target, trained without privacy."""
    included = np.zeros((1, len(data[1])), bool)
    included[0, rows["train"]] = True
    recipe = attacks.Recipe(hidden=WIDTHS)
    return attacks.train_stacked(data, included, recipe=recipe, classes=100, seed=seed).model(0)


def told(attack: attacks.Attack, model: attacks.Model, members: Examples, others: Examples) -> dict[str, float]:
    """Advantage, PPV and the share of members found at .1 % false positives."""
    scores = attack(model, members=members, non_members=others)
    return {
        "advantage": attacks.advantage(scores),
        "ppv": attacks.ppv(scores),
        "tpr_at_0.001": float(members_at_fpr(scores, 0.001).mean()),
    }


def hits(model: attacks.Model, examples: Examples) -> float:
    """Accuracy."""
    return float(np.mean(model(examples[0]).argmax(1) == examples[1]))


def shokri(data: Examples, pool: np.ndarray, seed: int) -> ShadowModels:
    """Five shadow models of the pool, all at once, and an attack network for each class."""
    splits = shadow_splits(data[1][pool], models=5, records=10000, seed=seed)
    included = np.zeros((5, len(data[1])), bool)
    for row, (inside, _) in zip(included, splits, strict=True):
        row[pool[inside]] = True
    recipe = attacks.Recipe(hidden=WIDTHS, precision="bfloat16")
    stack = attacks.train_stacked(data, included, recipe=recipe, classes=100, seed=seed)
    return ShadowModels(
        [
            (stack.model(k), part(data, pool[inside]), part(data, pool[outside]))
            for k, (inside, outside) in enumerate(splits)
        ]
    )


def private_runs(members: Examples, others: Examples, *, noise: float = 0.2194, runs: int = 1) -> dict[str, Any]:
    """DP-Adam at the noise of the paper's RDP epsilon 1000."""
    scores, accuracy = [], []
    for run in range(runs):
        torch.manual_seed(run)
        model = mlp(50, 100, hidden=WIDTHS)
        fit(
            model,
            *members,
            loss=cross_entropy,
            optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
            clip_norm=1.0,
            noise_multiplier=noise,
            batch_size=200,
            epochs=100,
        )
        scores.append(attacks.LossThreshold()(answers(model), members=members, non_members=others))
        accuracy.append(hits(answers(model), others))
    return {
        "yeom_advantage": [attacks.advantage(each) for each in scores],
        "yeom_ppv": [attacks.ppv(each) for each in scores],
        "flagged_in_every_run": attacks.overlaps(scores)[-1].members,
        "ppv_of_those": attacks.overlaps(scores)[-1].ppv,
        "test": float(np.mean(accuracy)),
    }


def white_box(data_dir: str | None) -> Figures:
    """n = 10000, B = 200, T = 5000, 2x256 network: half of 10000 Dirac canaries are among the 10000 records."""
    records, canaries, rate, steps = 10000, 10000, 0.02, 5000
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(records, 50)).astype(np.float32), draw.integers(0, 100, records)
    for epsilon, noise in ((1, 5.376), (2, 2.932), (4, 1.697), (8, 1.090)):
        train = partial(fit, clip_norm=1.0, noise_multiplier=noise, sample_rate=rate)
        spent: dict[str, float] = {}
        with cpu(spent, "a fifth of it without canaries"):
            model = mlp(50, 100, hidden=WIDTHS)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            train(model, x, y, loss=cross_entropy, optimizer=optimizer, steps=steps // 5)
        lane = CanaryLane(
            partial(train, steps=steps),
            lambda: mlp(50, 100, hidden=WIDTHS),
            x[: records - canaries // 2],
            y[: records - canaries // 2],
            classes=100,
            optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
            clip_norm=1.0,
            sample_rate=rate,
            observers=[audit.LikelihoodRatio(noise, rate)],
            width=canaries,
        )
        with cpu(spent, "with canaries"):
            scores = audit.one_run(lane, attack="white_box", canaries=canaries)
        yield str(epsilon), audited(scores, noise, rate, steps, spent)


def audited(scores: attacks.Scores, noise: float, rate: float, steps: int, spent: dict[str, float]) -> dict[str, Any]:
    """Every estimator's epsilon over the certified one."""
    claim = accountant("pld")(Gaussian(noise).poisson(rate) * steps)
    family = noise_family(lambda s: Gaussian(s).poisson(rate) * steps, low=noise / 2, high=noise * 4)
    certified = float(claim.epsilon(DELTA))
    with cpu(spent, "estimate"):
        points = normal_points(scores, confidence=0.95)
        by_normal = refute_family(family, lambda curve: not points <= curve, delta=DELTA)
    by_counts = audit.audit_scores(scores, delta=DELTA, trials="independent", estimator="fixed", claim=claim)
    found = {
        "normal, noise family": by_normal.epsilon_lower,
        "fixed, noise family": refute_family(family, by_counts.refutes, delta=DELTA).epsilon_lower,
        "fixed": by_counts.epsilon_lower,
        "normal": audit_normal(scores, delta=DELTA).epsilon_lower,
        "one run": audit.audit_one_run(scores, delta=DELTA).epsilon_lower,
        "one run, noise family": refute_family(family, guesses_refute(scores), delta=DELTA).epsilon_lower,
    }
    return {
        "certified": certified,
        "epsilon": found,
        "ratio": {name: value / certified for name, value in found.items()},
        "detectable_mu": by_counts.detectable_mu,
        "cpu_seconds": spent,
        "lane_cost": spent["with canaries"] / spent["a fifth of it without canaries"] / 5 - 1,
    }


def black_box(data_dir: str | None) -> Figures:
    """100 models with the canary and 100 without at epsilon 10: only the final model's answers are seen."""
    for name, hidden in (("logistic", ()), ("mlp", (64, 64))):
        game = WorstCase(hidden=hidden, records=200, epsilon=10.0, delta=DELTA, steps=50)
        with cpu(spent := {}, "seconds"):
            scores = many_runs(game.trial, attack="black_box", runs=100, threshold=game.threshold)
        claim = game.claim
        found = audit.audit_scores(scores, delta=DELTA, trials="independent", estimator="fixed", claim=claim)
        steps = game.steps
        family = noise_family(lambda s, steps=steps: Gaussian(s) * steps, low=game.noise / 2, high=game.noise * 20)
        yield (
            name,
            {
                "certified": float(claim.epsilon(DELTA)),
                "gaussian family": refute_family(gaussian_family(), found.refutes, delta=DELTA).epsilon_lower,
                "noise family": refute_family(family, found.refutes, delta=DELTA).epsilon_lower,
                "fixed": found.epsilon_lower,
                "normal": audit_normal(scores, delta=DELTA).epsilon_lower,
                "refuted": found.refutes(claim),
                "cpu_seconds": spent["seconds"],
            },
        )


def broken(data_dir: str | None) -> Figures:
    """Each broken trainer, one run of Dirac canaries, two scores at half of the failure probability of 1e-3."""
    sys.path.insert(0, str(ROOT))
    from tests.audit.broken import BROKEN, Claim, sound

    claim = Claim(clip_norm=0.7, noise_multiplier=2.0, sample_rate=0.05, steps=200)
    curve = accountant("pld")(claim.mechanism)
    yield "claim", {"epsilon": float(curve.epsilon(DELTA)), "mu": float(curve.mu())}
    for name, trainer in ({"nothing": sound} | BROKEN).items():
        for canaries in (400, 4000, 20000):
            results = both_scores(partial(trainer, claim), claim, curve, canaries)
            found = any(result.refutes(curve) for result in results)
            yield (
                f"{name}, {canaries} canaries",
                {
                    "refuted": found,
                    "mu_lower": max(result.mu_lower for result in results),
                    "detectable_mu": results[0].detectable_mu,
                    "detectable_epsilon": results[0].detectable_epsilon,
                },
            )
            if found:
                break


def both_scores(train: Any, claim: Any, curve: Any, canaries: int) -> list[audit.AuditResult]:
    """The likelihood ratio and the jumps of one run, each audited at 99.95 %."""
    draw = np.random.default_rng(0)
    ratio = audit.LikelihoodRatio(claim.noise_multiplier, claim.sample_rate)
    jumps, flips = ReleaseDifferences(claim.noise_multiplier), []
    lane = CanaryLane(
        train,
        lambda: linear(10, 3),
        draw.normal(size=(400, 10)).astype(np.float32),
        draw.integers(0, 3, 400),
        classes=3,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        clip_norm=claim.clip_norm,
        sample_rate=claim.sample_rate,
        observers=[ratio, jumps],
        width=canaries,
    )
    first = audit.one_run(lambda coins: flips.append(coins) or lane(coins), attack="ratio", canaries=canaries)
    second = attacks.Scores("jumps", jumps.total[flips[0]], jumps.total[~flips[0]], 0.0)
    return [
        audit.audit_scores(scores, delta=DELTA, trials="independent", confidence=0.9995, claim=curve)
        for scores in (first, second)
    ]


COMMANDS: dict[str, Callable[[str | None], Figures]] = {
    "leak": leak,
    "shadow-attacks": shadow_attacks,
    "shadows": shadows,
    "white-box": white_box,
    "black-box": black_box,
    "coverage": coverage,
    "broken": broken,
}


def main() -> None:
    """Run one command, and keep each of its figures as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--data-dir", help="folder of the original data files")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, figures in COMMANDS[given.command](given.data_dir):
        print(f"{name}: {json.dumps(figures)}", flush=True)
        known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        known.setdefault(given.command, {})[name] = figures
        write_text(RESULTS, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
