"""Rules that are wrong in one place are noticed by what their operations do."""

import pytest

from tacit.verification.calls import Call
from tacit.verification.record_types import Records
from tacit.verification.rules import RULES
from tests.verification.meaning import TAKEN, Mistyped, taken
from tests.verification.rule_cases import CASES

NAMES = sorted({case.name for case in CASES})


def noticed(name):
    """Whether the cases of `name` show that its rule is wrong: by a type that does not hold, or one too few or many."""
    try:
        return taken(name) != TAKEN[name]
    except (Mistyped, IndexError, RuntimeError, TypeError, ValueError, AttributeError):
        return True


def changed(kind, change):
    if isinstance(kind, list):
        return [changed(each, change) for each in kind]
    return change(kind) if isinstance(kind, Records) else kind


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dot"])
def test_a_shifted_axis_is_noticed(name, monkeypatch):
    right = RULES[name]
    monkeypatch.setitem(RULES, name, lambda call: changed(right(call), lambda kind: Records(kind.axis + 1, kind.inner)))
    assert noticed(name)


class Ignoring(Call):
    """Gives the default, or zero, for one argument."""

    def __getitem__(self, name):
        found = super().__getitem__(name)
        if name != self.ignored:
            return found
        if isinstance(found, list):
            return [0 for _ in found]
        return 0 if not isinstance(found, bool) else False


IGNORED = [
    (name, argument)
    for name, argument in [
        *((name, "dim") for name in (
            "sum", "mean", "amax", "logsumexp", "any", "var", "max", "argmax", "linalg_vector_norm", "median",
            "_softmax", "_log_softmax", "cumsum", "sort", "glu", "renorm", "topk", "gather", "scatter", "scatter_add",
            "index_add", "index_select", "cat", "stack", "slice_backward", "select_backward", "kthvalue",
        )),
 ("flip", "dims"), ("sum", "keepdim"), ("amax", "keepdim"), ("var_mean", "keepdim"), ("max", "keepdim"),
        ("mse_loss", "reduction"), ("nll_loss_forward", "reduction"), ("multi_margin_loss", "reduction"),
        ("constant_pad_nd", "pad"), ("native_batch_norm", "training"), ("index_put", "accumulate"),
        ("roll", "shifts"), ("slice_backward", "start"),
    ]
    if name in NAMES
]  # fmt: skip


@pytest.mark.parametrize(("name", "argument"), IGNORED)
def test_an_ignored_argument_is_noticed(name, argument, monkeypatch):
    right = RULES[name]

    def wrong(call):
        call.__class__, call.ignored = Ignoring, argument
        return right(call)

    monkeypatch.setitem(RULES, name, wrong)
    assert noticed(name)


# Rules whose refusals no small case needs: they take every type that their arguments may have.
TAKES_ALL = {"_to_copy", "clone", "gelu", "native_dropout", "copy", "repeat", "select_backward"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TAKES_ALL])
def test_a_rule_that_refuses_nothing_is_noticed(name, monkeypatch):
    monkeypatch.setattr(Call, "refuse", lambda self, *said: None)
    monkeypatch.setattr(Call, "public", lambda self, *said: None)
    monkeypatch.setattr(Call, "whole", lambda self: Records(0))
    assert noticed(name)
