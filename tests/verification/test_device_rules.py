"""Rules of the kernels of other devices, which run nowhere here: their types from calls without a run."""

import pytest
import torch

from tacit.errors import MixesRecords
from tacit.verification.calls import Call
from tacit.verification.record_types import Public, Records, WholeBatch
from tacit.verification.rules import RULES

aten = torch.ops.aten
B, T, H, D = 3, 5, 2, 4
OWN, STATE = Records(0), Records(1)
HEADS = [torch.zeros(B, H, T, D) for _ in range(3)]
SUMS, SEED, GRADIENT = torch.zeros(B, H, T), torch.tensor(7), torch.zeros(B, H, T, D)
MASK = torch.zeros(B, 1, T, T)
X, STATES = torch.zeros(T, B, D), [torch.zeros(1, B, H) for _ in range(2)]
WEIGHTS = [torch.zeros(4 * H, D), torch.zeros(4 * H, H)]
BUFFER = torch.zeros(9)


def typed(operation, args, **kinds):
    """The types of all outputs of a call, by those of its arguments; tensors without one are public."""
    call = Call(operation, args, {}, lambda value: Public(), "train.py:1", B)
    given = dict(call.given)
    by_id = {id(each): kind for name, kind in kinds.items() for each in [given[name]]}
    call._kind_of = lambda value: by_id.get(id(value), Public())
    found = RULES[operation._schema.name.partition("::")[2]](call)
    assert not call.unread()
    return found


HEADED = {"query": OWN, "key": OWN, "value": OWN}
KIND = (2, H, 0, 1)


@pytest.mark.parametrize(
    ("operation", "args", "outputs"),
    [
        (aten._scaled_dot_product_efficient_attention.default, (*HEADS, None, True, 0.1), 4),
        (aten._scaled_dot_product_flash_attention.default, (*HEADS, 0.1, True), 9),
        (aten._scaled_dot_product_cudnn_attention.default, (*HEADS, None, True, 0.1), 9),
    ],
)
def test_attention_gives_results_of_records_and_public_seeds(operation, args, outputs):
    assert typed(operation, args, **HEADED) == [OWN, OWN, *[Public()] * (outputs - 2)]
    with pytest.raises(MixesRecords, match="from record to record"):
        typed(operation, args, **dict.fromkeys(HEADED, Records(2)))


def test_a_mask_of_records_is_their_own_and_its_gradient_too():
    operation = aten._scaled_dot_product_efficient_attention_backward.default
    args = (GRADIENT, *HEADS, MASK, GRADIENT, SUMS, SEED, SEED, 0.1, [True] * 4)
    kinds = HEADED | {"grad_out_": OWN, "out": OWN, "logsumexp": OWN}
    assert typed(operation, args, **kinds, attn_bias=OWN) == [OWN] * 4
    *own, summed = typed(operation, args, **kinds)
    assert own == [OWN] * 3
    assert isinstance(summed, WholeBatch)
    with pytest.raises(MixesRecords, match="mask is of other records"):
        typed(operation, args, **kinds, attn_bias=Records(2))


@pytest.mark.parametrize("name", ["flash", "cudnn"])
def test_gradients_of_attention_are_of_records(name):
    lengths = (None, None, T, T, 0.1, False)
    if name == "flash":
        operation = aten._scaled_dot_product_flash_attention_backward.default
        args = (GRADIENT, *HEADS, GRADIENT, SUMS, *lengths, SEED, SEED)
    else:
        operation = aten._scaled_dot_product_cudnn_attention_backward.default
        args = (GRADIENT, *HEADS, GRADIENT, SUMS, SEED, SEED, None, *lengths)
    kinds = HEADED | {"grad_out": OWN, "out": OWN, "logsumexp": OWN}
    assert typed(operation, args, **kinds)[:3] == [OWN] * 3
    with pytest.raises(MixesRecords, match="philox_seed follows the records"):
        typed(operation, args, **kinds, philox_seed=OWN)


@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers_of_the_device(batch_first):
    x, kind = (X.transpose(0, 1), OWN) if batch_first else (X, STATE)
    given = (*KIND, batch_first, 0.0, True, False)
    forward = aten._cudnn_rnn.default, (x, WEIGHTS, 2, BUFFER, *STATES, *given, [], None)
    assert typed(*forward, input=kind, hx=STATE, cx=STATE) == [kind, STATE, STATE, Public(), Public()]
    assert typed(*forward, input=kind) == [kind, STATE, STATE, Public(), Public()]
    with pytest.raises(MixesRecords, match="not on its batch axis"):
        typed(*forward, input=Records(1 if batch_first else 0))
    with pytest.raises(MixesRecords, match="weight_buf follows the records"):
        typed(*forward, input=kind, weight_buf=OWN)
    packed = (x, WEIGHTS, 2, BUFFER, *STATES, *given, [3, 2], None)
    with pytest.raises(MixesRecords, match="packed"):
        typed(aten._cudnn_rnn.default, packed, input=kind)
    back = (x, WEIGHTS, 2, BUFFER, *STATES, x, x, None, None, *given, [], None, BUFFER, [True] * 4)
    *own, first, second = typed(aten._cudnn_rnn_backward.default, back, input=kind, grad_output=kind)
    assert own == [kind, STATE, STATE]
    assert isinstance(first, WholeBatch)
    assert isinstance(second, WholeBatch)


@pytest.mark.parametrize(("operation", "gates"), [("lstm", 4), ("gru", 3)])
def test_gradients_of_biases_of_a_cell_are_sums(operation, gates):
    gradient, work = torch.zeros(B, H), torch.zeros(B, gates * H)
    if operation == "lstm":
        args, call = (
            (gradient, None, gradient.clone(), gradient.clone(), work, True),
            "_thnn_fused_lstm_cell_backward_impl",
        )
        kinds = dict.fromkeys(("grad_hy", "cx", "cy", "workspace"), OWN)
    else:
        args, call = (gradient, work, True), "_thnn_fused_gru_cell_backward"
        kinds = dict.fromkeys(("grad_hy", "workspace"), OWN)
    found = typed(getattr(aten, call).default, args, **kinds)
    sums = 1 if operation == "lstm" else 2
    assert found[:-sums] == [OWN] * (len(found) - sums)
    assert all(isinstance(each, WholeBatch) for each in found[-sums:])
