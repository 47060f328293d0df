"""Numbers that steer a run, from step to step, beside the sizes of its batches: whether they follow these.

How many records were drawn is private. Nothing in a number shows that `len(x)` is in it, but that it goes with the
sizes does: settings of an optimizer, and numbers of a program that may change at every pass, are held against them.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer

from tacit.training.optimizers import settings_of

Place = tuple[str, *tuple[Hashable, ...]]
"""A number in words, and what else tells it from others."""
CHANGES = "{}, which changes from step to step"
MEASURED = "the records that {} measures on between steps"
"""Inputs of a run, for `Ledger.take_as_public`."""
BY_SIZE = "follows the number of records drawn, which is private: let it follow the step, or nothing"
_MOST = 1000  # numbers that are followed; a program whose numbers change their places at every pass has no use for more
_BY_CHANCE = math.log(1e-5)  # of a schedule to follow the sizes, below which it is not taken for one


class NumbersBySize:
    """Numbers that a run gives from step to step beside the sizes of its batches: nothing else shows `len(x)` in them.

    Sizes do not know a schedule. So n numbers of which n_i are alike are in their order, rising or falling, with a
    probability of at most 2 prod n_i! / n!; a size that comes again meets the number of before with the share that this
    number has; and of k steps at which both change, a share s goes up or down together, or against each other, with one
    of at most 4 exp(-6/5 k (s - 1/2)^2), as neighbours in the order of random sizes are dependent. The last is asked of
    changes of the number too, which are the larger, the larger this batch was or the one before it, where records are
    counted.

    Example:
        >>> numbers = NumbersBySize()
        >>> [numbers.follow(0.1 * size, size) for size in (5, 9, 4, 7, 3, 8, 2, 6, 1)][-2:]
        [False, True]
    """

    def __init__(self) -> None:
        self._numbers: dict[int, float] = {}
        self._counts = Counter[float]()
        self._of_order, self._of_repeats = math.log(2), 0.0
        self._ordered = self._repeated = True
        self._together = [_Together() for _ in range(3)]
        self._last: tuple[float, int] | None = None

    def follow(self, number: float, size: int) -> bool:
        """Whether `number`, at a batch of `size`, and those before it follow the sizes, not by chance."""
        together = self._go_together(number, size)
        if not self._repeated:  # Nor is it in their order; counts of a long schedule are not kept.
            return together
        again, known = size in self._numbers, self._numbers.setdefault(size, number)
        self._counts[number] += 1
        share = math.log(self._counts[number] / self._counts.total())
        self._of_order += share
        self._of_repeats += share if again else 0.0
        self._repeated = self._repeated and known == number
        if self._ordered and len(self._counts) > 1:
            numbers = [each for _, each in sorted(self._numbers.items())]
            self._ordered = self._repeated and numbers in (sorted(numbers), sorted(numbers, reverse=True))
        ordered = self._ordered and self._of_order < _BY_CHANCE
        return ordered or (self._repeated and self._of_repeats < _BY_CHANCE) or together

    def _go_together(self, number: float, size: int) -> bool:
        """Whether the number goes with the size, or its change with the size of this batch or of the last one."""
        last, self._last = self._last, (number, size)
        level, change, later = self._together
        found = [level.add(number, size)]
        if last is not None:
            found += [change.add(abs(number - last[0]), size), later.add(abs(number - last[0]), last[1])]
        return any(found)


class _Together:
    """How often a number and a size went up or down together, of all steps at which both changed."""

    def __init__(self) -> None:
        self._changes = self._alike = 0
        self._last: tuple[float, int] | None = None

    def add(self, number: float, size: int) -> bool:
        """Whether they did, or did not, more often than by chance."""
        last, self._last = self._last, (number, size)
        if last is None or number == last[0] or size == last[1]:
            return False
        self._changes += 1
        self._alike += (number > last[0]) == (size > last[1])
        return math.log(4) - 1.2 * self._changes * (self._alike / self._changes - 0.5) ** 2 < _BY_CHANCE


class Followed:
    """Numbers of several places beside the size of this batch, and of the one before, from their first change on.

    Attributes:
        changed: those that changed for the first time in the last call, in words.

    Example:
        >>> numbers = Followed()
        >>> [numbers.follow([(("a rate",), 0.1 * size)], size) for size in (5, 9, 4, 7, 3, 8, 2, 6, 1, 10)][-1]
        'a rate'
    """

    def __init__(self) -> None:
        self._first: dict[Place, float] = {}
        self._changed: dict[Place, tuple[NumbersBySize, NumbersBySize]] = {}
        self._before: int | None = None
        self.changed: list[str] = []

    def follow(self, numbers: Iterable[tuple[Place, float]], size: int) -> str:
        """The first number, in words, that follows the sizes, not by chance; empty where none does.

        Args:
            numbers: place -> number in this batch.
            size: of this batch.
        """
        before, self._before, found = self._before, size, ""
        self.changed = []
        for place, number in numbers:
            if place not in self._changed:
                if len(self._first) >= _MOST:
                    self._first.clear()
                    self._changed.clear()
                if self._first.setdefault(place, number) == number:
                    continue
                self._changed[place] = NumbersBySize(), NumbersBySize()
                self.changed.append(place[0])
            now, last = self._changed[place]
            follows = now.follow(number, size), before is not None and last.follow(number, before)
            found = found or (place[0] if any(follows) else "")
        return found


class FollowedSettings(Followed):
    """Every setting of every parameter group of `optimizer` that is a number, and the seed of torch's generator.

    A schedule of torch.optim goes by the step, which is public: what changes beside one is none of `changed`.
    """

    def __init__(self, optimizer: Optimizer):
        super().__init__()
        self._optimizer = optimizer
        self._settings: tuple[object, ...] = ()

    def follow_settings(self, size: int) -> str:
        """The first setting, in words, that follows the sizes of batches; those that never changed do not."""
        before, self._settings = self._settings, (settings_of(self._optimizer), torch.initial_seed())
        same = not self._changed and before == self._settings
        found = self.follow(() if same else _numbers_in(self._optimizer), size)
        if self.changed and scheduled(self._optimizer):
            self.changed = [what for what in self.changed if what == _SEED]
        return found


def scheduled(optimizer: Optimizer) -> bool:
    """Whether a schedule of torch.optim changes its settings."""
    return any("initial_lr" in group for group in optimizer.param_groups)


_SEED = "the seed of torch's generator"


def _numbers_in(optimizer: Optimizer) -> Iterator[tuple[Place, float]]:
    yield (_SEED,), float(torch.initial_seed())
    for place, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            what = "the learning rate" if key == "lr" else f"{key} of the optimizer"
            for order, number in enumerate(value if isinstance(value, tuple) else (value,)):
                if type(number) in (float, int) or (isinstance(number, Tensor) and number.numel() == 1):
                    yield (what, place, order), float(number)
