"""The facts of a run of `fit`: what holds because the loop is its own, and what it checks as the run goes on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakMethod

from torch import Tensor, nn
from torch.utils.data import DataLoader

from tacit import check
from tacit.accounting import How, Ledger
from tacit.errors import UnsupportedModel
from tacit.gradients.inputs import Inputs
from tacit.gradients.model_probe import TYPED
from tacit.standing import Standing
from tacit.training.callbacks import Callback
from tacit.training.captured import Memory, captured, data_leaves
from tacit.training.guarded_data import MADE_OF_OWN
from tacit.training.numbers_by_size import MEASURED
from tacit.training.other_loaders import ModuleCalls
from tacit.training.private_step import PrivateUpdate
from tacit.training.state_guard import COMPARED, ProgramGuard, RunChecks, StateGuard

_ENFORCED = {
    "numbers_read": "the loop of fit reads no number from private values",
    "released": "fit gives weights, the ledger and public numbers",
}


class FitChecks(RunChecks):
    """Checks of one run of `fit`, which write its facts into the ledger.

    Args:
        update: of the run, whose model is in train mode.
        ledger: of the run, begun.
        data: what the caller gave as inputs and targets.
        public: name -> tensor, array or module that `loss` reads and that does not follow the private records.
        doubt: why it is not known that each record is made of its own entries.
        augment: what makes copies of records in the model's call; None for nothing.

    Attributes:
        probe: of the model.
    """

    def __init__(
        self,
        update: PrivateUpdate,
        ledger: Ledger,
        data: tuple[Any, Any],
        public: Mapping[str, object] | None,
        doubt: str = "",
        augment: object = None,
    ):
        super().__init__(ledger, update.optimizer, StateGuard(update.model))
        self._model, self._loss, self._data = update.model, update.loss, data
        self.probe, self._untyped = update.clipped.probe, False
        self._programs = ProgramGuard(self.probe, self.guard, update.loss, augment, sizes=update.sizes)
        for name, says in _ENFORCED.items():
            self.facts.note(name, How.ENFORCED, says)
        for name in ("model_rows", "model_state", "loss_rows"):
            self.facts.note(name, How.ENFORCED, TYPED)
        self.facts.note("rows", How.ENFORCED, MADE_OF_OWN)
        if doubt:
            self.facts.missing("rows", doubt)
        self.note_repeats(data[0].dataset if isinstance(data[0], DataLoader) else data[0])
        self._note_loss(public)
        self.probe.public = [value for each in (public or {}).values() for value in _tensors_of(each)]

    def restored(self) -> None:
        """Take the present weights as those of the last release."""
        self.guard.released()

    def before_release(self, step: int, inputs: Inputs, targets: Tensor) -> None:
        """Compare the weights with the last release, and type model and loss where that is due at `step` = 1, 2, ...

        Raises before the release of that step.
        """
        self._compare_weights(step)
        self.follow_optimizer(len(targets), "leave it to the steps")
        if not len(targets):
            return
        try:
            typed = self._programs.before_pass(inputs, targets, self._loss, changed=self.guard.changed())
        except UnsupportedModel:
            if step > 1:
                self.ledger.mark_unsafe("a check of the model failed after steps were released", Standing.CLAIMED)
            raise
        for name, says in self.probe.typed.doubts:
            self.facts.missing(name, says)
        self._untyped = self._untyped or not typed
        self.note_numbers("", self._programs.changed)

    def _compare_weights(self, step: int) -> None:
        """Between two releases only callbacks and `evaluate` run: what they change is no release."""
        if name := self.guard.moved():
            self.facts.missing(
                "weights",
                f"a callback or evaluate changed weight {name!r} between two releases: change weights after fit, or "
                "train by make_private and declare the change by private.postprocessing",
            )
        else:
            self.facts.checked("weights", step=step, says=COMPARED)

    def stopped(self, reason: str, callback: Callback | None) -> None:
        """Name why a callback of the user's own ended the run."""
        if callback is not None and not _is_of_tacit(callback):
            self.ledger.take_as_public(f'why the run ended: "{reason}"')

    def after_run(self) -> None:
        """Say what no typed pass reached."""
        if self._untyped and not self.probe.times:
            for name in ("model_rows", "model_state", "loss_rows"):
                self.facts.missing(name, "no batch had finite rows to probe the model with")

    def watched(
        self,
        evaluate: Callable[[nn.Module], dict[str, float]] | None,
        callbacks: Sequence[Callback],
        scheduler: object = None,
    ) -> Any:
        """`evaluate`, watched for training data; their numbers are noticed here, in `callbacks` and in the schedule."""
        own = [Memory(each) for each in data_leaves(self._data)]
        rates = [("the schedule", each) for each in (scheduler, *getattr(scheduler, "lr_lambdas", ()))]
        for what, function in (("evaluate", evaluate), *((type(each).__name__, each) for each in callbacks), *rates):
            for name, value in captured(function).items() if function is not None else ():  # type: ignore[arg-type]
                if any(each.is_all_of(value) for each in own):
                    self._numbers_of_private_data(f"{what} reads {name}, which is trained on")
        self._calls = ModuleCalls(own, self._model, WeakMethod(self._measured))
        if evaluate is None:
            return None

        public = "" if _is_of_tacit(evaluate) else "evaluate"

        def private(value: object) -> bool:
            return any(each.overlaps(value) for each in own)

        def measured(model: nn.Module) -> dict[str, float]:
            with self.watching(public), _inputs_of(model, private) as found:
                self._measured(False)
                numbers = evaluate(model)
            if found:
                self._numbers_of_private_data("evaluate calls the model on training data")
            return numbers

        return measured

    @contextmanager
    def watching(self, public: str = "a callback") -> Iterator[None]:
        """Note which records a model is called on inside; those of a test set that tacit held apart have no name."""
        self._public = public
        self._calls.begin()
        try:
            yield
        finally:
            self._calls.end()

    def _measured(self, on_records: bool) -> None:
        if self._public:
            self.ledger.take_as_public(MEASURED.format(self._public))
        if on_records:
            self._numbers_of_private_data(f"{self._public or 'evaluate'} calls a model on training data")

    def _numbers_of_private_data(self, what: str) -> None:
        says = f"{what}: its numbers have no privacy cost here; measure on held-out data"
        self.facts.missing("numbers_read", says)
        self.facts.missing("released", says)

    def _note_loss(self, public: Mapping[str, object] | None) -> None:
        """Note what the loss reads besides its arguments."""
        declared = dict(check.instance("public", public if public is not None else {}, dict, "a table name -> tensor"))
        if declared:
            self.facts.declare("loss_rows", "; ".join(f"loss reads public {name}" for name in declared))
        weights = {id(each) for each in (*self._model.modules(), *self._model.parameters(), *self._model.buffers())}
        known = weights | {id(value) for value in declared.values()}
        undeclared = [name for name, value in captured(self._loss).items() if id(value) not in known]
        for name in undeclared:
            self.facts.missing(
                "loss_rows", f'loss reads {name}, of unknown origin: declare it by public={{"{name}": {name}}}'
            )


def _is_of_tacit(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith("tacit.")


def _tensors_of(value: object) -> list[Tensor]:
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    return [value] if isinstance(value, Tensor) else []


@contextmanager
def _inputs_of(model: nn.Module, private: Callable[[object], bool]) -> Iterator[list[bool]]:
    """Whether the model is called on private values inside."""
    found: list[bool] = []

    def look(_: nn.Module, positional: tuple[object, ...], named: dict[str, object]) -> None:
        if not found and any(private(each) for each in data_leaves((positional, named))):
            found.append(True)

    with model.register_forward_pre_hook(look, with_kwargs=True):
        yield found
