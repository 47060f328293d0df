"""Which draws every value follows: one that is used in two orders, or by itself and through all, is none of a record's.

Draws of a batch differ from record to record, and record i has its own. That holds no longer where record i uses the
draw of another too, as in w[1:] - w[:-1], or a number that all of them make, as in w - w[0].
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from torch import Tensor

from tacit.verification import rules
from tacit.verification.calls import Call
from tacit.verification.record_types import PUBLIC, Draws, Layout, Public

Place = tuple[int, int, int]
"""First byte, last byte and wrapped stride of the draws that a view takes, record by record."""
Use = tuple[int, tuple[Place | None, ...]]
"""Storage of a draw, and the views through which it came; None for one that is not taken record by record."""


class DrawUses:
    """The draws that values follow, by the storages of values."""

    def __init__(self) -> None:
        self._of: dict[int, frozenset[Use]] = {}
        self._met: dict[int, set[Use]] = {}

    def drew(self, value: Tensor, uses: frozenset[Use] = frozenset()) -> None:
        """`value` holds fresh draws, whose law follows those of `uses`."""
        memory = value.untyped_storage()._cdata
        self._of[memory] = uses | {(memory, ())}

    def follow(self, value: Tensor, uses: frozenset[Use]) -> None:
        """`value` follows the draws of `uses`."""
        self._of[value.untyped_storage()._cdata] = uses

    def any(self, values: Iterable[Tensor]) -> bool:
        """Whether any of `values` follows a draw."""
        return any(value.untyped_storage()._cdata in self._of for value in values)

    def through(self, call: Call) -> tuple[list[Public], frozenset[Use]]:
        """How the results of an operation on public values are drawn, and which draws they follow."""
        drawn, shared = rules.drawn(call)
        kinds = [PUBLIC if id(value) in shared else call.kind(value) for value in call.tensors]
        found = [kind.drawn if isinstance(kind, Public) else () for kind in kinds]
        given = [min(each, key=lambda draws: draws.axis, default=None) for each in found]
        uses = self._uses(zip(call.tensors, given, strict=True))
        if _differ(uses) or not any(each.drawn for each in drawn):
            return [PUBLIC], self._uses((value, None) for value in call.tensors)
        return drawn, uses

    def meet(self, call: Call) -> bool:
        """Whether records meet draws here that others, or these in another order, have met before."""
        public = [value for value in call.tensors if isinstance(call.kind(value), Public)]
        uses = self._uses((value, call.drawn.get(id(value))) for value in public)
        for use in uses:
            self._met.setdefault(use[0], set()).add(use)
        return any(_differ(self._met[root]) for root, _ in uses)

    def _uses(self, given: Iterable[tuple[Tensor, Draws | None]]) -> frozenset[Use]:
        """The draws of values, each taken record by record as it says, or as a number of all where it says None."""
        found = set[Use]()
        for value, draws in given:
            own = self._of.get(value.untyped_storage()._cdata, frozenset())
            place = None if draws is None or not own else _place(value, draws)
            whole = place == (0, value.untyped_storage().nbytes(), 0)
            found |= own if whole else {(root, use if use[-1:] == (None,) else (*use, place)) for root, use in own}
        return frozenset(found)


def _differ(uses: Iterable[Use]) -> bool:
    """Whether a draw is used in two ways."""
    return any(one[0] == two[0] and not _apart(one[1], two[1]) for one, two in combinations(set(uses), 2))


def _apart(one: Sequence[Place | None], two: Sequence[Place | None]) -> bool:
    """Whether two views take different draws."""
    if len(one) != len(two) or one[:-1] != two[:-1] or one[-1] is None or two[-1] is None:
        return False
    return one[-1][1] <= two[-1][0] or two[-1][1] <= one[-1][0]


def _place(value: Tensor, draws: Draws) -> Place:
    layout = Layout.of(value)
    stride = max(1, draws.inner * layout.strides[draws.axis])
    last = layout.offset + sum((size - 1) * step for _, size, step in layout.steps()) + value.element_size()
    first, last = layout.offset // stride * stride, -(-last // stride) * stride
    return first, last, stride if last - first > stride * draws.count else 0
