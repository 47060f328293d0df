"""Rules of operations entry by entry: random shapes, axes, inner values and arguments, by what the operation does."""

import random
from itertools import product

import pytest
import torch

from tacit.verification.record_types import Records
from tacit.verification.rules import DRAWN, RULES
from tacit.verification.rules.arithmetic import pointwise
from tests.verification.meaning import Mistyped, _close, check_meaning, entries, outputs, typed_outputs
from tests.verification.rule_cases import B, Case

POINTWISE = sorted(name for name, rule in RULES.items() if rule is pointwise)
TRIES = 5  # random calls of one overload, with values of the first dtype that it takes
DRAWING = {each.rstrip("_") for each in DRAWN} | {"native_dropout"}
# Draw as many bits as the values say; at these values every draw is one number.
CERTAIN = {
    "poisson": lambda value: 0 * value,
    "_standard_gamma": lambda value: 1e24 * (1 + value),
    "binomial": lambda value: (value > 0.5).to(value.dtype),
}
VALUES = (
    lambda *shape: 0.1 + 0.8 * torch.rand(shape, dtype=torch.float64),
    lambda *shape: torch.randint(1, 4, shape),
    lambda *shape: torch.rand(shape) < 0.5,
    lambda *shape: torch.randn((*shape, 2), dtype=torch.float64),
)


def overloads(name):
    """The functional forms of an operation, and those that write where there is no other."""
    found = [getattr(torch.ops.aten, each) for each in (name, name + "_") if hasattr(torch.ops.aten, each)]
    every = [getattr(each, overload) for each in found for overload in each.overloads()]
    kept = [each for each in every if not any(argument.is_out for argument in each._schema.arguments)]
    return [each for each in kept if any("Tensor" in str(argument.type) for argument in each._schema.arguments)]


def argument(kind, default, draw):
    """A value for an argument that is no tensor."""
    if kind in ("number", "Optional[number]", "float", "Optional[float]"):
        return draw.choice((0.25, 0.5, 1, 2))
    if kind == "int":
        return draw.choice((1, 2))
    if kind == "bool":
        return draw.random() < 0.5
    return default if default is not None else {"List[int]": [1], "List[bool]": [True]}.get(kind)


def random_case(name, overload, values, draw):
    """A call of `overload` with random arguments, and types of its tensors: broadcast, moved, public or of records."""
    inner, axis, rank = draw.choice((1, 1, 2)), draw.randrange(2), draw.choice((2, 3))
    full = [draw.choice((1, 2, B)) for _ in range(rank)]
    full[axis] = B * inner * draw.choice((1, 2))
    given, places, kinds, made = [], [], [], []
    for each in overload._schema.arguments:
        kind = str(each.type)
        if kind != "Tensor":
            given.append(argument(kind, each.default_value, draw))
            continue
        first = not places
        role = "records" if first else draw.choice(("records", "records", "one", "public", "equal", "moved"))
        cut = 0 if first else draw.choice((0, 0, axis))
        shape = full[cut:]
        if role == "one":
            shape[axis - cut] = 1
        places.append(len(given))
        given.append(None)
        named = {"records": Records(axis - cut, inner), "one": "public", "moved": Records(len(shape) - 1)}
        kinds.append(named.get(role, role))
        if isinstance(kinds[-1], Records) and shape[kinds[-1].axis] % (B * kinds[-1].inner):
            kinds[-1] = "public"
        made.append(shape)

    def call(*tensors):
        torch.default_generator.manual_seed(0)
        filled = list(given)
        for place, value in zip(places, tensors, strict=True):
            filled[place] = CERTAIN.get(name, lambda each: each)(value)
        named = {each.name: value for each, value in zip(overload._schema.arguments, filled, strict=True)}
        found = overload(**named)
        return torch.view_as_real(found) if isinstance(found, torch.Tensor) and found.is_complex() else found

    return Case(name, call, lambda: [values(*shape) for shape in made]), kinds


def check_alone(case, kinds):
    """Each record alone, all public arguments as they are for it, gives the entries of its own."""
    tensors = case.tensors()
    tensors = [
        torch.full_like(value, value.flatten()[0]) if kind == "equal" else value
        for value, kind in zip(tensors, kinds, strict=True)
    ]
    typed = next(kind for kind in kinds if isinstance(kind, Records))
    behind = tensors[0].dim() - typed.axis
    found = typed_outputs(case.call, tensors, kinds)
    for record in range(B):
        alone = []
        for value, kind in zip(tensors, kinds, strict=True):
            axis = value.dim() - behind
            own = kind if isinstance(kind, Records) else Records(axis, typed.inner)
            constant = axis < 0 or (not isinstance(kind, Records) and value.shape[axis] == 1)
            alone.append(value if constant else entries(value, own, record).flatten(own.axis, own.axis + 1))
        for (value, kind), other in zip(found, outputs(case.call, alone), strict=True):
            if isinstance(kind, Records):
                mine = entries(value, kind, record).flatten(kind.axis, kind.axis + 1)
                if not _close(mine, other):
                    raise Mistyped(f"{case.name} {kinds}: record {record} is another alone")


def taken(name):
    """How many random calls of `name` the rule took, each checked against its meaning."""
    found = 0
    for overload in overloads(name):
        used = set()
        for values, seed in product(VALUES, range(TRIES)):
            torch.default_generator.manual_seed(seed)
            case, kinds = random_case(name, overload, values, random.Random(seed))
            try:
                outputs(case.call, case.tensors())
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue  # The operation takes no such values or arguments.
            used.add(values)
            if len(used) > 1:
                break
            draws = name in DRAWING and name not in CERTAIN
            took = check_meaning(case, kinds, draws=draws)
            found += took
            if took and not draws:
                check_alone(case, kinds)
    return found


@pytest.mark.parametrize("name", POINTWISE)
def test_a_pointwise_rule_says_what_its_operation_does(name):
    assert taken(name)
