"""`check_mechanism`: the facets of a mechanism agree with each other, with its sampler and with its JSON form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields

import numpy as np

from tacit.accounting import Ledger
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Compose, Laplace, Mechanism, alternatives
from tacit.mechanisms.pairs import Pair
from tacit.relation import Relation
from tacit.testing import draws
from tacit.tradeoff.gaussian import gaussian_delta

_ORDERS = np.array([1.25, 2.0, 3.5, 8.0, 32.0])  # Renyi orders: fractional and integer, moderate and large.
_EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
_DELTAS = (1e-9, 1e-5, 1e-2, 0.3)


def check_mechanism(mechanism: Mechanism, *, draw: draws.Draw | None = None, false_alarm: float = 1e-6) -> None:
    """Check that a mechanism is one consistent statement about one randomised step.

    - Each relation: a facet answers with a valid number or raises `Refused`; replace-one never costs less than
      add/remove or zero-out.
    - The dominating pair is a pair: P and Q have mass 1, and their masses in every interval of the privacy loss have
      a ratio within that interval.
    - Facets against numeric integration of the dominating pair. `rdp` and `zcdp` bound its Renyi divergences in both
      directions; `pure_epsilon` bounds its largest loss; `epsilon_at` bounds its hockey-stick divergence; `mu` gives
      its privacy profile exactly.
    - Composition algebra: `m * 3`, `m + m`, `m + n` are flat and merged, and every facet adds up as its theorem says.
    - JSON: a ledger of the mechanism loads as the same mechanism (enter a type of your own in
      `tacit.mechanisms.spec.TYPES`).
    - The sampler, where there is one: no threshold test tells the two neighbours apart better than the facets allow.

    Args:
        mechanism: the step, with parameters of ordinary size (an epsilon between 0.1 and 10).
        draw: (with the record?, count) -> outputs, shape (count,), of the mechanism on a worst pair of neighbours
            under add/remove; None leaves the sampler out. Seed it for a repeatable check.
        false_alarm: probability in (0, 1) that a correct sampler fails the check, over all its tests together.

    Raises:
        AssertionError: a property does not hold; the sentence names it.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> from tacit.noise import SeededStream, gaussian
        >>> stream = SeededStream(0)
        >>> check_mechanism(Gaussian(1.5), draw=lambda record, n: float(record) + gaussian(stream, n, std=1.5))
    """
    _check_value_object(mechanism)
    _check_json(mechanism)
    _check_algebra(mechanism)
    for relation in Relation:
        _check_facets(mechanism, relation)
    _check_relations(mechanism)
    if draw is not None:
        draws.check_draws(draw, _profile(mechanism), false_alarm)


def _check_value_object(mechanism: Mechanism) -> None:
    draws.require(hash(mechanism) == hash(mechanism), f"{mechanism} must have a hash.")
    draws.require(str(mechanism), "a mechanism must have a text form.")
    for field in fields(mechanism):
        try:
            setattr(mechanism, field.name, getattr(mechanism, field.name))
        except FrozenInstanceError:
            continue
        raise AssertionError(f"{type(mechanism).__name__} must be a frozen dataclass; {field.name} can be set.")


def _check_json(mechanism: Mechanism) -> None:
    for composed in (mechanism, mechanism * 3, mechanism + Laplace(2.0)):
        ledger = Ledger.of(composed)
        copy = Ledger.from_spec(json.loads(json.dumps(ledger.spec())))
        same = copy.mechanism == ledger.mechanism and copy.hash == ledger.hash
        draws.require(same, f"a ledger of {composed} must survive its JSON form; got {copy.mechanism}.")


def _check_algebra(mechanism: Mechanism) -> None:
    other = Laplace(3.0)
    equalities = (
        ("m * 3 == m + m + m", mechanism * 3, mechanism + mechanism + mechanism),
        ("3 * m == m * 3", 3 * mechanism, mechanism * 3),
        ("(m * 2) * 3 == m * 6", mechanism * 2 * 3, mechanism * 6),
        ("(m + n) * 2 == m * 2 + n * 2", (mechanism + other) * 2, mechanism * 2 + other * 2),
    )
    for law, left, right in equalities:
        draws.require(left == right, f"composition must satisfy {law} for m = {mechanism}; got {left} and {right}.")
    draws.require_raises(InvalidInput, lambda: mechanism * 0, "zero runs of a mechanism", message="steps must be")
    with_number = lambda: mechanism + 1  # type: ignore[operator]  # noqa: E731
    draws.require_raises(InvalidInput, with_number, "a sum with a number", message="mechanism must be")
    for relation in Relation:
        for facet, read in _facets(relation).items():
            _check_additive(facet, read, relation, mechanism, other)


def _check_additive(
    facet: str, read: Callable[[Mechanism], np.ndarray], relation: Relation, mechanism: Mechanism, other: Mechanism
) -> None:
    """Three runs cost three times as much; a sum costs what its parts cost together."""
    power = 2 if facet == "mu" else 1  # Parameters of Gaussian DP add up in squares (Dong, Roth & Su 2019, Cor. 2).
    single = _answer(lambda: read(mechanism))
    if single is None:
        return
    what = f"{facet} of {mechanism} * 3 under {relation.value}"
    _require_equal(read(mechanism * 3) ** power, 3 * single**power, what)
    beside = _answer(lambda: read(other))
    if beside is not None:
        total = single**power + beside**power
        _require_equal(read(mechanism + other) ** power, total, f"{facet} of {mechanism} + {other}")


def _facets(relation: Relation) -> dict[str, Callable[[Mechanism], np.ndarray]]:
    """The facets that add up under composition."""
    return {
        "rdp": lambda m: np.asarray(m.rdp(_ORDERS, relation)),
        "pure_epsilon": lambda m: np.asarray(m.pure_epsilon(relation)),
        "zcdp": lambda m: np.asarray(m.zcdp(relation)),
        "mu": lambda m: np.asarray(m.mu(relation)),
        "clt_mu_squared": lambda m: np.asarray(m.clt_mu_squared(relation)),
    }


def _answer(read: Callable[[], np.ndarray]) -> np.ndarray | None:
    try:
        return read()
    except Refused:
        return None


def _require_equal(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    for one, other in zip(np.ravel(got), np.ravel(expected), strict=True):
        draws.require_close(float(one), float(other), what, relative=1e-9)


def _check_relations(mechanism: Mechanism) -> None:
    """At least one facet under one relation; replacing is never cheaper than adding, removing or zeroing."""
    readers = _facets(Relation.ADD_REMOVE)
    costs = {
        relation: {name: _answer(lambda read=read: read(mechanism)) for name, read in _facets(relation).items()}
        for relation in Relation
    }
    for name in readers:
        replaced = costs[Relation.REPLACE_ONE][name]
        for relation in (Relation.ADD_REMOVE, Relation.ZERO_OUT):
            cost = costs[relation][name]
            if cost is not None and replaced is not None:
                cheaper = np.any(replaced < cost * (1 - draws.ALLOWANCE))
                draws.require(
                    not cheaper, f"{name} of {mechanism} must not be less under replace_one than {relation.value}."
                )
    for part in _accountable(mechanism):
        known = any(_knows(part, relation) for relation in Relation)
        draws.require(known, f"{part} must know a facet under one relation at least.")


def _accountable(mechanism: Mechanism) -> list[Mechanism]:
    """What accountants read in its place: the branches of parallel parts, the passes of disjoint batches."""
    found: list[Mechanism] = []
    for branch in alternatives(Compose.of((mechanism, 1))):
        for part, _ in branch.parts():
            found.append(part.accounted(1)[0])
    return found


def _knows(mechanism: Mechanism, relation: Relation) -> bool:
    readers = (*_facets(relation).values(), lambda m: np.asarray(m.epsilon_at(1e-5, relation)))
    return bool(_pairs(mechanism, relation)) or any(
        _answer(lambda read=read: read(mechanism)) is not None for read in readers
    )


def _pairs(mechanism: Mechanism, relation: Relation) -> tuple[Pair, ...]:
    try:
        return mechanism.dominating_pairs(relation)
    except Refused:
        return ()


def _check_facets(mechanism: Mechanism, relation: Relation) -> None:
    for name, read in _facets(relation).items():
        values = _answer(lambda read=read: read(mechanism))
        if values is not None:
            valid = not np.isnan(values).any() and (values >= 0).all()
            draws.require(valid, f"{name} of {mechanism} under {relation.value} must be >= 0; got {values}.")
    orders = _answer(lambda: mechanism.rdp(_ORDERS, relation))
    if orders is not None:
        draws.require(orders.shape == _ORDERS.shape, f"rdp must have the shape of the orders; got {orders.shape}.")
    _check_epsilon_at(mechanism, relation)
    for pair in _pairs(mechanism, relation):
        draws.check_pair(pair)
        for law in draws.BinnedLoss.members(pair):
            _check_against_law(mechanism, relation, law)


def _check_epsilon_at(mechanism: Mechanism, relation: Relation) -> None:
    answers = [_answer(lambda delta=delta: np.asarray(mechanism.epsilon_at(delta, relation))) for delta in _DELTAS]
    known = [float(answer) for answer in answers if answer is not None]
    draws.require_sorted(known, f"epsilon_at of {mechanism} at the deltas {_DELTAS}", decreasing=True)


def _check_against_law(mechanism: Mechanism, relation: Relation, law: draws.BinnedLoss) -> None:
    where = f"of {mechanism} under {relation.value}"
    for name, bounds in (
        ("rdp", _answer(lambda: mechanism.rdp(_ORDERS, relation))),
        ("zcdp * order", _answer(lambda: mechanism.zcdp(relation) * _ORDERS)),
    ):
        for order, bound in zip(_ORDERS, () if bounds is None else bounds, strict=bounds is not None):
            reached = law.renyi(float(order))
            sentence = f"{name} {where} at order {order} must be at least {reached}, which a pair reaches; got {bound}."
            draws.require(bound >= reached * (1 - draws.ALLOWANCE) - draws.MASS_ROUNDING, sentence)
    pure = _answer(lambda: np.asarray(mechanism.pure_epsilon(relation)))
    if pure is not None and math.isfinite(float(pure)):
        _check_epsilon(law, float(pure) * (1 + draws.ALLOWANCE), 0.0, f"pure_epsilon {where}")
    for delta in _DELTAS:
        epsilon = _answer(lambda delta=delta: np.asarray(mechanism.epsilon_at(delta, relation)))
        if epsilon is not None and math.isfinite(float(epsilon)):
            _check_epsilon(law, float(epsilon) * (1 + draws.ALLOWANCE), delta, f"epsilon_at({delta}) {where}")
    mu = _answer(lambda: np.asarray(mechanism.mu(relation)))
    if mu is not None and math.isfinite(float(mu)):
        for epsilon in _EPSILONS:
            got, exact = law.hockey_stick(epsilon)[0], gaussian_delta(epsilon, float(mu))
            draws.require_close(got, exact, f"delta({epsilon}) {where}, which is mu-GDP,", absolute=1e-11)


def _check_epsilon(law: draws.BinnedLoss, epsilon: float, delta: float, what: str) -> None:
    if epsilon > 700.0:  # e^epsilon overflows.
        return
    reached = max(law.hockey_stick(epsilon))
    allowed = delta * (1 + 1e-6) + draws.MASS_ROUNDING * math.exp(min(epsilon, 20.0))
    draws.require(
        reached <= allowed, f"{what} = {epsilon} must leave a delta of at most {delta}; a pair reaches {reached}."
    )


def _profile(mechanism: Mechanism) -> draws.Profile:
    """delta(epsilon) under add/remove: of the dominating pairs, else the smallest delta that a facet allows."""
    pairs = _pairs(mechanism, Relation.ADD_REMOVE)
    if pairs:
        laws = [draws.BinnedLoss(pair) for pair in pairs]
        return lambda epsilon: max(value for law in laws for value in law.hockey_stick(epsilon))
    deltas = np.logspace(-12, 0, 200)
    epsilons = [float(mechanism.epsilon_at(float(delta), Relation.ADD_REMOVE)) for delta in deltas]
    return lambda epsilon: float(min(d for d, e in zip(deltas, [*epsilons[:-1], 0.0], strict=True) if e <= epsilon))
