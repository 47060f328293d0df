"""The shipped product on a small model, with all that it checks at run time, and then the audit of that run.

    python -m benchmarks.mutants.product SCENARIO ENGINE

prints {"check": ..., "audit": ...}: what a check said, or what the audit refuted; null where nothing did.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.estimators import ReleaseDifferences, audit_normal
from tacit import audit
from tacit.accounting import Ledger, accountant
from tacit.attacks import Scores
from tacit.audit import LikelihoodRatio, audit_scores
from tacit.clipping import AdaptiveClip, BatchMeanClip, FlatClip, GroupClip, PerLayerClip
from tacit.erm import DPLogisticRegression
from tacit.errors import BudgetExceeded, TacitError
from tacit.gradients import ClippedSum
from tacit.noise import SecureStream, SeededStream
from tacit.noise.discrete import choose
from tacit.relation import Relation
from tacit.runs import read_config, train
from tacit.runs.canaries import CanaryLane, LaneMonitors
from tacit.runs.canary_training import Training
from tacit.sampling import GroupedPoissonSampling, TruncatedPoissonSampling
from tacit.standing import Standing
from tacit.tickets import PrivateTicket, TicketPlan, count_scores
from tacit.tradeoff import Epsilon
from tacit.training import Functions, fit, make_private
from tacit_papers.input_perturbation.descent_methods import OutputPerturbation

CLIP, NOISE, RATE, STEPS, CANARIES, REAL = 2.5, 2.0, 0.15, 100, 4000, 300
# A true claim is refuted with a probability below 1e-3 by all audits of a run together.
CONFIDENCE = 0.999
# Facts that only a user can declare leave a sound run conditional.
SOUND = (Standing.PROVEN, Standing.CONDITIONAL)


class Tokens(nn.Module):
    """Mean of embedded tokens, which repeat within a record."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of x, (batch, tokens)."""
        return self.head(torch.tanh(self.table(x).sum(1)))


class Tied(nn.Module):
    """One matrix that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of x, (batch, 8)."""
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Sequence(nn.Module):
    """Linear layers at each of two positions; the second is wide enough for norms from Gram matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of x, (batch, 8)."""
        positions = torch.tanh(self.first(x.view(len(x), 2, 4)))
        return self.head(torch.tanh(self.inner(positions)).sum(1))


def dense() -> nn.Module:
    """A network of two layers."""
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 3))


def convolution() -> nn.Module:
    """Three convolutions, the last ones on maps of 1 x 1."""
    layers = [nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 6, 2), nn.Tanh(), nn.Conv2d(6, 6, 1), nn.Tanh()]
    return nn.Sequential(*layers, nn.Conv2d(6, 6, 1), nn.Flatten(), nn.Linear(6, 3))


def audited(
    engine: str, body: Callable[[], nn.Module] = dense, *, rate: float = RATE, canaries: int = CANARIES, **settings: Any
) -> str | None:
    """What the audit says of one run by `fit` with canaries among its records; None where nothing is refuted.

    The claim is that of the ledger which the run wrote.
    """
    draw, ledger, flips = np.random.default_rng(0), Ledger(), []
    inputs = draw.normal(size=(REAL, 8)).astype(np.float32)
    inputs = draw.integers(0, 5, (REAL, 8)) if body is Tokens else inputs
    noise = settings.pop("noise_multiplier", NOISE)
    settings = {"clip_norm": CLIP} | settings if "clipping" not in settings else settings
    train = partial(
        fit, noise_multiplier=noise, sample_rate=rate, steps=STEPS, engine=engine, ledger=ledger, **settings
    )
    observers = [LikelihoodRatio(NOISE, rate), ReleaseDifferences(NOISE)]
    # As `tacit audit` watches runs of one noise, flat clipping and Poisson samples.
    plain = noise == NOISE and not settings.keys() & {"clipping", "sampling"}
    monitors = LaneMonitors(Training(NOISE, rate, STEPS), CLIP) if plain else None
    if monitors is not None:
        train = partial(train, sampling=monitors.sampling)
    lane = CanaryLane(
        train,
        body,
        inputs,
        draw.integers(0, 3, REAL),
        classes=3,
        # A momentum is no part of the audit; it keeps the step from taking the short way, which no hook sees.
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.1),
        clip_norm=CLIP,
        sample_rate=rate,
        observers=observers,
        width=canaries,
        monitors=monitors,
    )
    ratio = audit.one_run(lambda coins: flips.append(coins) or lane(coins), attack="ratio", canaries=canaries)
    jumps = observers[1].total
    scores = [ratio, Scores("jumps", jumps[flips[0]], jumps[~flips[0]], 0.0)]
    if ledger.standing not in SOUND:
        raise Refuted(f"the ledger is {ledger.standing.value}: {'; '.join(ledger.unsafe)}")
    # A rule whose gradients are wrong is refused before the first release, and a slower method takes its place.
    first, labels = torch.as_tensor(inputs[:4]), torch.zeros(4, dtype=torch.int64)
    loss = partial(F.cross_entropy, reduction="none")
    if reason := ClippedSum(body(), FlatClip(CLIP)).fallback_reason(loss, first, labels):
        raise Refuted(f"the verification of gradients refused a rule: {reason}")
    failed = [name for name, passed in (monitors.verdicts() if monitors is not None else {}).items() if not passed]
    if failed:
        return f"the {failed[0]} monitor failed"
    claim = accountant("pld")(ledger)
    level = 1 - (1 - CONFIDENCE) / 3
    for each in scores:
        found = audit_scores(each, delta=1e-5, trials="independent", confidence=level, claim=claim)
        if not np.isfinite(each.members).all() or found.refutes(claim):
            return f"canaries by {each.attack} refute the claim"
    if audit_normal(ratio, delta=1e-5, confidence=level, claim=claim).refuted:
        return "the separation of canaries refutes the claim"
    return None


class Refuted(TacitError):
    """A check at run time said no."""


def looped(engine: str, steps: Callable[[Any], None], *, planned: int = 40, **settings: Any) -> str | None:
    """A loop over `make_private`; what its checks say is raised."""
    torch.manual_seed(0)
    x = torch.randn(60, 8)
    data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    model = dense()
    settings = {"clip_norm": CLIP, "noise_multiplier": NOISE, "steps": planned} | settings
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    private = make_private(model, optimizer, torch.utils.data.DataLoader(data, batch_size=6), **settings)
    steps(private)
    if private.ledger.standing not in SOUND:
        raise Refuted(f"the ledger is {private.ledger.standing.value}")
    return None


def losses(private: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One loss per record."""
    return F.cross_entropy(private.model(x), y, reduction="none")


def _plain_loop(private: Any) -> None:
    for x, y in private.loader:
        losses(private, x, y).backward()
        private.optimizer.step()


def _two_backwards(private: Any) -> None:
    for x, y in private.loader:
        losses(private, x, y).backward()
        losses(private, x, y).backward()
        private.optimizer.step()


def _original_loader(private: Any) -> None:
    for _ in private.loader:
        x = torch.randn(17, 8)
        losses(private, x, (x[:, 0] > 0).long()).backward()
        private.optimizer.step()


def _left_out(private: Any) -> None:
    for number, (x, y) in enumerate(private.loader):
        if number % 2 == 0:
            losses(private, x, y).backward()
        private.optimizer.step()


def _discarded(private: Any) -> None:
    drawn = iter(private.loader)
    first, again = next(drawn)[0], next(iter(private.loader))[0]
    if first.shape != again.shape or not torch.equal(first, again):
        raise Refuted("a batch that was left out did not come again")


def _late_mixing(private: Any) -> None:
    for number, (x, y) in enumerate(private.loader):
        each = losses(private, x, y)
        (each / each.detach().mean() if number > 1 else each).backward()
        private.optimizer.step()


def _clip_change(private: Any) -> None:
    for number, (x, y) in enumerate(private.loader):
        if number == 2:
            private.optimizer.max_grad_norm = CLIP
        losses(private, x, y).backward()
        private.optimizer.step()


def _users(engine: str) -> None:
    """Users of three records each, whose gradients are equal: clipped apart they would count three times."""
    model = nn.Linear(2, 1, bias=False)
    optimizer, ledger = torch.optim.SGD(model.parameters(), lr=1.0), Ledger(unit="user")
    sampling = GroupedPoissonSampling(np.arange(300) // 3)
    x, y = torch.full((300, 2), 5.0), torch.zeros(300)
    settings = {"clip_norm": CLIP, "noise_multiplier": 1e-6, "sample_rate": 1.0, "steps": 1, "ledger": ledger}
    nn.init.zeros_(model.weight)
    fit(model, x, y, loss=lambda o, t: o[:, 0] - t, optimizer=optimizer, engine=engine, sampling=sampling, **settings)
    if ledger.standing not in SOUND:
        raise Refuted(f"the ledger is {ledger.standing.value}")


def _fitted(
    engine: str, *, records: int = REAL, poison: float | None = None, claimed: bool = False, **settings: Any
) -> None:
    """A run without audit: weights must be finite and the ledger proven."""
    torch.manual_seed(0)
    model, x = dense(), torch.randn(records, 8)
    y = (x[:, 0] > 0).long()
    if poison is not None:
        model, x[0] = nn.Linear(8, 2), poison * x[0].sign()
    chosen = {"clip_norm": CLIP, "sample_rate": RATE, "steps": 30, "ledger": Ledger(), "noise_multiplier": NOISE}
    chosen |= settings
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    fit(model, x, y, loss=partial(F.cross_entropy, reduction="none"), optimizer=optimizer, engine=engine, **chosen)
    if not all(torch.isfinite(parameter).all() for parameter in model.parameters()):
        raise Refuted("the weights are not finite")
    if not claimed and chosen["ledger"].standing not in SOUND:
        raise Refuted(f"the ledger is {chosen['ledger'].standing.value}")


def _budget(engine: str) -> None:
    """A loop that stops at its target; the account of its ledger must meet it."""
    target, ledger = Epsilon(3.0, 1e-5), Ledger()

    def steps(private: Any) -> None:
        try:
            while True:
                for x, y in private.loader:
                    losses(private, x, y).backward()
                    private.optimizer.step()
        except BudgetExceeded:
            return

    looped(engine, steps, target=target, planned=1000, ledger=ledger)
    if not target.met(accountant("pld")(ledger)):
        raise Refuted("the account of the ledger is above the target")


def _resumed(engine: str) -> None:
    """A seeded run that is stopped after a checkpoint and goes on."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"checkpoint": f"{folder}/run.safetensors", "checkpoint_every": 5, "resume": True}

        def stop(done: int, total: int) -> None:
            if done == 7:
                raise KeyboardInterrupt

        for callbacks in ([Functions(on_step=stop)], []):
            with contextlib.suppress(KeyboardInterrupt):
                _fitted(engine, claimed=True, stream=SeededStream(0), callbacks=callbacks, **kept)


def _ticket(engine: str) -> None:
    """A ticket that is found, chosen and trained privately."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=draw)
    settings = {"batch_size": 30, "epochs": 1, "search_epochs": 1}
    run = PrivateTicket(_ticket_body, (x, (x[:, 0] > 0).long()), TicketPlan("T4", epsilon=8.0, **settings)).run()
    if run.ledger.standing not in SOUND:
        raise Refuted(f"the ledger is {run.ledger.standing.value}")


def _ticket_body() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def _erm(engine: str) -> None:
    """Output perturbation under replace-one."""
    draw, ledger = np.random.default_rng(0), Ledger(relation="replace_one")
    x = draw.normal(size=(200, 3))
    declared = {"data_bounds": (-1.0, 1.0), "classes": [0, 1], "relation": "replace_one"}
    # Without an intercept nothing but the declared bounds limits the norm of a row.
    model = DPLogisticRegression(
        method=OutputPerturbation(), epsilon=1.0, delta=0.0, fit_intercept=False, ledger=ledger, **declared
    )
    model.fit(x, (x[:, 0] > 0).astype(int))
    if ledger.standing not in SOUND:
        raise Refuted(f"the ledger is {ledger.standing.value}")


def _choice(engine: str) -> None:
    """A choice between tickets where records are replaced."""
    choose(count_scores([90, 80], [0.5, 0.1]), 1.0, SecureStream(), relation=Relation.REPLACE_ONE)


def _preset(engine: str) -> None:
    """A preset, whose accuracies along the way must be those of test data."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = train(read_config("digits", {"epochs": 2.0}), out=folder).card.ledger
    if "numbers_read" in {fact.id for fact in ledger.facts.assumed}:
        raise Refuted("the ledger says that evaluate reads what is trained on")


def _forked(engine: str) -> None:
    """A stream that is made before a process forks, and used in the child."""
    stream = SecureStream()
    child = os.fork()
    if child == 0:
        try:
            _fitted(engine, stream=stream)
        except TacitError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise Refuted("the forked process refused its stream")


Scenario = Callable[[str], str | None]
SCENARIOS: dict[str, Scenario] = {
    "plain": audited,
    "low rate": partial(audited, rate=0.02),
    "half rate": partial(audited, rate=0.5),
    "tiny batches": partial(audited, rate=0.0005, canaries=1000),
    "physical": partial(audited, max_physical_batch_size=64),
    "schedule": partial(audited, noise_multiplier=[2.0 if step % 2 else 8.0 for step in range(STEPS)]),
    "per layer": partial(audited, clipping=PerLayerClip(CLIP)),
    "groups": partial(audited, clipping=GroupClip({"lane*": 1.8, "*": 1.7})),
    "adaptive": partial(audited, clipping=AdaptiveClip(CLIP, learning_rate=1e-6)),
    "batch mean": partial(audited, clipping=BatchMeanClip(CLIP)),
    "truncated": partial(audited, sampling=TruncatedPoissonSampling(300)),
    "tokens": partial(audited, body=Tokens),
    "tied": partial(audited, body=Tied),
    "sequence": partial(audited, body=Sequence),
    "convolution": partial(audited, body=convolution),
    "users": _users,
    "bad record": partial(_fitted, poison=3e38),
    "two backwards": partial(looped, steps=_two_backwards),
    "original loader": partial(looped, steps=_original_loader),
    "left out": partial(looped, steps=_left_out, max_physical_batch_size=2),
    "discarded": partial(looped, steps=_discarded),
    "late mixing": partial(looped, steps=_late_mixing),
    "clip change": partial(looped, steps=_clip_change, clip_norm=CLIP / 50),
    "users loop": partial(
        looped, steps=_plain_loop, sampling=GroupedPoissonSampling(np.arange(60) // 3), max_physical_batch_size=2
    ),
    "fixed size": partial(_fitted, sampling="fixed_size", ledger=Ledger(relation="replace_one")),
    "budget": _budget,
    "resume": _resumed,
    "ticket": _ticket,
    "choice": _choice,
    "erm": _erm,
    "preset": _preset,
    "forked": _forked,
}
"""By name: a run with its checks, and its audit where there is one."""

WRONG_LOOPS = frozenset(("two backwards", "original loader", "left out", "late mixing"))
"""Scenarios that are refused without any bug; with a bug in the check that refuses them another one still must."""


def main() -> None:
    """Run one scenario."""
    name, engine = sys.argv[1:]
    warnings.simplefilter("ignore")
    found: dict[str, str | None] = {"check": None, "audit": None}
    try:
        found["audit"] = SCENARIOS[name](engine) if name in SCENARIOS else None
    except Exception as error:
        # Any refusal counts, whatever its class: the run does not end with a number.
        found["check"] = f"{type(error).__name__}: {str(error)[:200]}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
