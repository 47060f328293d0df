"""Operations that make tensors of sizes alone, and random draws."""

from collections.abc import Iterator
from itertools import product

from torch import Tensor, broadcast_shapes

from tacit.errors import MixesRecords
from tacit.verification.calls import RULES, Call
from tacit.verification.record_types import Draws, Public, Records, RecordType, is_constant

UNWRITTEN = frozenset(("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"))
"""Give memory as it is."""
DRAWS = frozenset(("rand", "randn", "randint", "rand_like", "randn_like", "randint_like"))
"""Give independent draws of one law."""
_IN_PLACE = frozenset(
    ("bernoulli_", "uniform_", "normal_", "exponential_", "random_", "log_normal_", "cauchy_", "geometric_")
)
DRAWN = DRAWS | _IN_PLACE | frozenset((
    "randperm", "bernoulli", "normal", "multinomial", "poisson", "binomial", "native_dropout", "_standard_gamma",
    "_sample_dirichlet",
))  # fmt: skip
"""Draw from a generator."""
FACTORIES = UNWRITTEN | DRAWS | frozenset((
    "zeros", "ones", "full", "arange", "linspace", "logspace", "eye", "scalar_tensor", "zeros_like", "ones_like",
    "full_like", "new_zeros", "new_ones", "new_full", "randperm", "tril_indices", "triu_indices", "range",
    "hann_window", "hamming_window", "_efficientzerotensor", "complex32",
))  # fmt: skip
"""Read no value of their arguments."""
FILLS = frozenset(("copy_", "fill_", "zero_", "rrelu_with_noise", "rrelu_with_noise_", *_IN_PLACE))
"""Write all of what they are given, and do not read it."""


_LOOKUPS = frozenset(("index", "index_select", "gather", "take", "embedding"))


def drawn(call: Call) -> tuple[list[Public], frozenset[int]]:
    """How each result of an operation on public values is drawn, and identities of values that all draws share.

    Draws are records of a kind: where the rule of the operation types its result with draw i in the place of record i,
    every entry follows one draw alone, all by one function, and so is a draw of one law again. Values that are drawn
    may be shared by all, as a table is whose entries are taken at drawn indices.
    """
    given = [
        (value, kind.drawn) for value in call.tensors if isinstance(kind := call.kind(value), Public) and kind.drawn
    ]
    name = call.name.removeprefix("aten.")
    if name in DRAWN and call.given.get("generator") is not None:
        return [Public()], frozenset()
    if name in _IN_PLACE or (name in DRAWN and not given):
        return [Public(frozenset(_drawn_alike(call, name)))], frozenset()
    found = _drawn_by_rule(call, name, given)
    if name in _LOOKUPS and not any(found):
        table = call.tensors[0]
        given = [(value, drawn) for value, drawn in given if value is not table]
        return [Public(frozenset(each)) for each in _drawn_by_rule(call, name, given)] or [Public()], frozenset(
            [id(table)]
        )
    return [Public(frozenset(each)) for each in found] or [Public()], frozenset()


def _drawn_by_rule(call: Call, name: str, given: list[tuple[Tensor, frozenset[Draws]]]) -> list[set[Draws]]:
    """How each result is drawn where values of `given` take the place of records."""
    found: list[set[Draws]] = []
    for count in {each.count for _, drawn in given for each in drawn}:
        ways = [
            [Records(each.axis, each.inner * (each.count // count)) for each in drawn if each.count % count == 0]
            for _, drawn in given
        ]
        for kinds in product(*ways):
            typed = call.with_types({id(value): kind for (value, _), kind in zip(given, kinds, strict=True)}, count)
            results = _types(typed, name)
            found = found or [set() for _ in results]
            for each, kind in zip(found, results, strict=False):
                each.update([Draws(kind.axis, kind.inner, count)] if isinstance(kind, Records) else [])
    return found


def _types(call: Call, name: str) -> list[RecordType]:
    """The types of the results by the rule of the operation; none where it refuses."""
    try:
        found = RULES[name.rstrip("_") if not name.startswith("__") else name.strip("_")](call)
    except (KeyError, MixesRecords):
        return []
    return [] if call.unread() else found if isinstance(found, list) else [found]


def _drawn_alike(call: Call, name: str) -> Iterator[Draws]:
    """The axes of fresh draws along which their law is the same."""
    if name == "multinomial":
        value = call["self"]
        if call["replacement"]:
            yield Draws(value.dim() - 1, 1, call["num_samples"])
        if value.dim() == 2 and is_constant(value, 0, 1, len(value)):
            yield Draws(0, 1, len(value))
        return
    laws = call.tensors[name in _IN_PLACE :]
    shape = broadcast_shapes(*(value.shape for value in call.tensors))
    for axis, size in enumerate(shape[: -1 if name == "_sample_dirichlet" else None]):
        places = [(value, axis + value.dim() - len(shape)) for value in laws]
        if all(place < 0 or is_constant(value, place, 1, value.shape[place]) for value, place in places):
            yield Draws(axis, 1, size)
