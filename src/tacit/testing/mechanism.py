"""`check_mechanism`: the facets of a mechanism agree with each other, with its sampler and with its JSON form."""

import json
import math
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields

import numpy as np

from tacit.accounting import Ledger
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Compose, Laplace, Mechanism, alternatives
from tacit.mechanisms.pairs.base import Pair
from tacit.relation import Relation
from tacit.testing import draws
from tacit.tradeoff.gaussian import gaussian_delta

_FACETS = ("rdp", "pure_epsilon", "zcdp", "mu", "clt_mu_squared")  # Those that add up under composition.
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
        _check_additive(mechanism, other, relation)


def _check_additive(mechanism: Mechanism, other: Mechanism, relation: Relation) -> None:
    """Three runs cost three times as much; a sum costs what its parts cost together."""
    beside = _answers(other, relation)
    for facet, single in _answers(mechanism, relation).items():
        power = 2 if facet == "mu" else 1  # Parameters of Gaussian DP add up in squares (Dong, Roth & Su 2019, Cor. 2).
        thrice, what = _read(mechanism * 3, facet, relation), f"{facet} of {mechanism} * 3 under {relation.value}"
        _require_equal(thrice**power, 3 * single**power, what)
        if facet in beside:
            both, total = _read(mechanism + other, facet, relation), single**power + beside[facet] ** power
            _require_equal(both**power, total, f"{facet} of {mechanism} + {other}")


def _require_equal(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    for one, other in zip(np.ravel(got), np.ravel(expected), strict=True):
        draws.require_close(float(one), float(other), what, relative=1e-9)


def _read(mechanism: Mechanism, facet: str, relation: Relation) -> np.ndarray:
    """A facet of `_FACETS`; of "rdp" at `_ORDERS`."""
    asked = (_ORDERS, relation) if facet == "rdp" else (relation,)
    return np.asarray(getattr(mechanism, facet)(*asked))


def _answers(mechanism: Mechanism, relation: Relation) -> dict[str, np.ndarray]:
    """The facets of `_FACETS` that the mechanism knows."""
    found = {}
    for facet in _FACETS:
        with suppress(Refused):
            found[facet] = _read(mechanism, facet, relation)
    return found


def _epsilons(mechanism: Mechanism, relation: Relation) -> dict[float, float]:
    """`epsilon_at` at those of `_DELTAS` where the mechanism knows it."""
    found = {}
    for delta in _DELTAS:
        with suppress(Refused):
            found[delta] = float(mechanism.epsilon_at(delta, relation))
    return found


def _pairs(mechanism: Mechanism, relation: Relation) -> tuple[Pair, ...]:
    with suppress(Refused):
        return mechanism.dominating_pairs(relation)
    return ()


def _check_relations(mechanism: Mechanism) -> None:
    """At least one facet under one relation; replacing is never cheaper than adding, removing or zeroing."""
    replaced = _answers(mechanism, Relation.REPLACE_ONE)
    for relation in (Relation.ADD_REMOVE, Relation.ZERO_OUT):
        for name, cost in _answers(mechanism, relation).items():
            cheaper = name in replaced and np.any(replaced[name] < cost * (1 - draws.ALLOWANCE))
            sentence = f"{name} of {mechanism} must not be less under replace_one than {relation.value}."
            draws.require(not cheaper, sentence)
    # What accountants read in its place: the branches of parallel parts, the passes of disjoint batches.
    for branch in alternatives(Compose.of((mechanism, 1))):
        for part in (part.accounted(1)[0] for part, _ in branch.parts()):
            known = any(_pairs(part, each) or _answers(part, each) or _epsilons(part, each) for each in Relation)
            draws.require(known, f"{part} must know a facet under one relation at least.")


def _check_facets(mechanism: Mechanism, relation: Relation) -> None:
    facets, epsilons = _answers(mechanism, relation), _epsilons(mechanism, relation)
    for name, values in facets.items():
        valid = not np.isnan(values).any() and (values >= 0).all()
        draws.require(valid, f"{name} of {mechanism} under {relation.value} must be >= 0; got {values}.")
    shape = facets.get("rdp", _ORDERS).shape
    draws.require(shape == _ORDERS.shape, f"rdp must have the shape of the orders; got {shape}.")
    what = f"epsilon_at of {mechanism} at the deltas {_DELTAS}"
    draws.require_sorted(epsilons.values(), what, decreasing=True)
    for pair in _pairs(mechanism, relation):
        draws.check_pair(pair)
        for law in draws.BinnedLoss.members(pair):
            _check_against_law(f"of {mechanism} under {relation.value}", law, facets, epsilons)


def _check_against_law(
    where: str, law: draws.BinnedLoss, facets: dict[str, np.ndarray], epsilons: dict[float, float]
) -> None:
    unknown = np.full(_ORDERS.shape, math.inf)
    for name, bounds in (("rdp", facets.get("rdp", unknown)), ("zcdp * order", facets.get("zcdp", unknown) * _ORDERS)):
        for order, bound in zip(_ORDERS, bounds, strict=True):
            reached = law.renyi(float(order))
            sentence = f"{name} {where} at order {order} must be at least {reached}, which a pair reaches; got {bound}."
            draws.require(bound >= reached * (1 - draws.ALLOWANCE) - draws.MASS_ROUNDING, sentence)
    for delta, given in ((0.0, float(facets.get("pure_epsilon", math.inf))), *epsilons.items()):
        epsilon = given * (1 + draws.ALLOWANCE)
        if epsilon <= 700.0:  # e^epsilon overflows beyond.
            reached, name = max(law.hockey_stick(epsilon)), f"epsilon_at({delta})" if delta else "pure_epsilon"
            allowed = delta * (1 + 1e-6) + draws.MASS_ROUNDING * math.exp(min(epsilon, 20.0))
            sentence = f"{name} {where} = {epsilon} must leave a delta of at most {delta}; a pair reaches {reached}."
            draws.require(reached <= allowed, sentence)
    mu = float(facets.get("mu", math.inf))
    for epsilon in _EPSILONS if math.isfinite(mu) else ():
        got, exact = law.hockey_stick(epsilon)[0], gaussian_delta(epsilon, mu)
        draws.require_close(got, exact, f"delta({epsilon}) {where}, which is mu-GDP,", absolute=1e-11)


def _profile(mechanism: Mechanism) -> draws.Profile:
    """delta(epsilon) under add/remove: of the dominating pairs, else the smallest delta that a facet allows."""
    pairs = _pairs(mechanism, Relation.ADD_REMOVE)
    if pairs:
        laws = [draws.BinnedLoss(pair) for pair in pairs]
        return lambda epsilon: max(value for law in laws for value in law.hockey_stick(epsilon))
    deltas = np.logspace(-12, 0, 200)
    epsilons = [float(mechanism.epsilon_at(float(delta), Relation.ADD_REMOVE)) for delta in deltas]
    return lambda epsilon: float(min(d for d, e in zip(deltas, [*epsilons[:-1], 0.0], strict=True) if e <= epsilon))
