"""What the type of a result says, against what the operation does: records replaced, and records in another order."""

from itertools import product

import torch
from torch import Tensor

from tacit.errors import MixesRecords
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import Public, Records, WholeBatch
from tests.verification.rule_cases import CASES, B

# Which types of arguments of the small cases each rule takes; a rule that is too strict or too loose moves its bits.
TAKEN = {
    "_adaptive_avg_pool2d": "0xc",
    "_cdist_forward": "0x176c",
    "_embedding_bag": "0x150000",
    "_fft_r2c": "0xc",
    "_log_softmax": "0x5c",
    "_safe_softmax": "0x5c",
    "_scaled_dot_product_flash_attention_for_cpu": "0x400000331400318000140500000000000026006600000",
    "_softmax": "0x5c",
    "_softmax_backward_data": "0x1105260",
    "_to_copy": "0x3",
    "_trilinear": "0xe3c36",
    "add": "0x23b149",
    "addcmul": "0x4cf",
    "addmm": "0x6b3bf384400c9",
    "all": "0x7ffff",
    "amax": "0x7ffff",
    "amin": "0x7ffff",
    "any": "0x7ffff",
    "argmax": "0x7f",
    "avg_pool2d": "0xc",
    "baddbmm": "0x1481a7d9a0118008400",
    "binary_cross_entropy": "0x2b",
    "binary_cross_entropy_with_logits": "0xad6b",
    "bmm": "0x2ed8fb31a",
    "bucketize": "0x10c",
    "cat": "0x1125261",
    "clamp": "0x4cf",
    "clone": "0x3",
    "constant_pad_nd": "0x19",
    "convolution": "0x100f00000",
    "convolution_backward": "0x80c36",
    "copy": "0x39",
    "count_nonzero": "0x7ffff",
    "cummax": "0x5c",
    "cumprod": "0x5c",
    "cumsum": "0x5c",
    "dot": "0x3f",
    "embedding": "0x1fc00",
    "flip": "0x5c",
    "gather": "0x1b05760",
    "gelu": "0x3",
    "glu": "0x13c",
    "grid_sampler_2d": "0xac0",
    "huber_loss": "0xad6b",
    "im2col": "0xc",
    "index": "0x7186060600d7bd800001d",
    "index_add": "0x1afff0005505fff660000",
    "index_put": "0x1000000586c000d86c00679832ac7fe00",
    "index_select": "0x1c6fc3",
    "kthvalue": "0x1f",
    "lerp": "0x8161b",
    "linalg_inv_ex": "0xc",
    "linalg_vector_norm": "0x7f",
    "logcumsumexp": "0x5c",
    "logsumexp": "0x7ffff",
    "masked_fill": "0x1365",
    "max": "0x1fff",
    "max_pool2d_with_indices": "0xc",
    "mean": "0x7ffff",
    "median": "0x1f",
    "min": "0x7f",
    "mm": "0x1fcce",
    "mse_loss": "0xad6b",
    "mse_loss_backward": "0x20586c00000161b",
    "mul": "0x15e",
    "multi_margin_loss": "0x1585878",
    "multinomial": "0x6",
    "mv": "0x1f7",
    "nansum": "0x7ffff",
    "native_batch_norm": "0x4194f",
    "native_dropout": "0x3",
    "native_group_norm": "0x10c00",
    "native_layer_norm": "0x433002",
    "nll_loss2d_forward": "0x1260026002600",
    "nll_loss_backward": "0x1000033c000f3c00000000033c033c0",
    "nll_loss_forward": "0x1585878",
    "pixel_shuffle": "0x6",
    "prod": "0x7ffff",
    "reflection_pad1d": "0xc",
    "renorm": "0x63",
    "repeat": "0x3",
    "roll": "0xb8",
    "scatter": "0x100010500000505000a6066600000",
    "scatter_add": "0x1af0bf50000050550f76f06600000",
    "searchsorted": "0xaf",
    "select_backward": "0x1f",
    "slice_backward": "0x1a",
    "smooth_l1_loss": "0xad6b",
    "soft_margin_loss": "0xad6b",
    "sort": "0x5c",
    "stack": "0x1365365365",
    "sum": "0x3fffff",
    "topk": "0x5c",
    "tril": "0xc",
    "upsample_nearest1d": "0x6",
    "var": "0x7f",
    "var_mean": "0x7f",
    "where": "0x4cf",
}


class Mistyped(AssertionError):
    """An operation does not do what the type of its result says."""


def types_of(value: Tensor):
    """All types that `value` may have: public, public and equal everywhere, or records along any axis."""
    found = ["public", "equal"]
    for axis, size in enumerate(value.shape):
        found += [Records(axis, inner) for inner in range(1, size // B + 1) if size % (inner * B) == 0]
    return found


def assignments(tensors, most=200):
    """Types of all arguments with at least one of records, spread over all of them."""
    every = [each for each in product(*map(types_of, tensors)) if any(isinstance(kind, Records) for kind in each)]
    return every[:: max(1, len(every) // most)]


def selected(value: Tensor, kind, order: Tensor) -> Tensor:
    """`value` with record order[i] at the places of record i."""
    parts = value.unflatten(kind.axis, (-1, B, kind.inner))
    return parts.index_select(kind.axis + 1, order).reshape(value.shape)


def entries(value: Tensor, kind, record: int) -> Tensor:
    """The entries of `record`."""
    return value.unflatten(kind.axis, (-1, B, kind.inner)).select(kind.axis + 1, record)


def outputs(call, tensors):
    found = call(*[value.clone() for value in tensors])
    return [each for each in (found if isinstance(found, list | tuple) else [found]) if isinstance(each, Tensor)]


def typed_outputs(call, tensors, kinds):
    """Results and their types, or None where the rule refuses."""
    mode = RecordMode(B)
    given = [value.clone() for value in tensors]
    for value, kind in zip(given, kinds, strict=True):
        if isinstance(kind, Records):
            mode.records(value, kind)
        else:
            mode.public(value)
    try:
        with mode:
            found = call(*given)
    except MixesRecords:
        return None
    found = [each for each in (found if isinstance(found, list | tuple) else [found]) if isinstance(each, Tensor)]
    return [(value, mode.kind(value)) for value in found]


def check_meaning(case, kinds, *, draws=False) -> bool:
    """Whether the rule took the types; raises `Mistyped` where the result's type is wrong.

    An operation that `draws` gives record i what its place has drawn, so that records in another order say nothing.
    """
    tensors = case.tensors()
    tensors = [
        value.flatten()[:1].reshape([1] * value.dim()).expand(value.shape).contiguous() if kind == "equal" else value
        for value, kind in zip(tensors, kinds, strict=True)
    ]
    found = typed_outputs(case.call, tensors, kinds)
    if found is None:
        return False
    others = case.tensors()
    order = torch.tensor([*range(1, B), 0])
    swapped = torch.tensor([1, 0, *range(2, B)])
    for replaced in (torch.arange(B) < 1, torch.arange(B) >= 1):
        again = outputs(case.call, [_replaced(*each, replaced) for each in zip(tensors, others, kinds, strict=True)])
        for (value, kind), other in zip(found, again, strict=True):
            if isinstance(kind, Public) and not _close(value, other):
                raise Mistyped(f"{case.name} {kinds}: a public result follows the records")
            if isinstance(kind, Records):
                for record in (~replaced).nonzero().flatten().tolist():
                    if not _close(entries(value, kind, record), entries(other, kind, record)):
                        raise Mistyped(f"{case.name} {kinds}: record {record} follows others in {kind}")
    for moved in () if draws else (order, swapped):
        given = [selected(value, kind, moved) if isinstance(kind, Records) else value
                 for value, kind in zip(tensors, kinds, strict=True)]  # fmt: skip
        for (value, kind), other in zip(found, outputs(case.call, given), strict=True):
            if isinstance(kind, Records) and not _close(selected(value, kind, moved), other):
                raise Mistyped(f"{case.name} {kinds}: the result follows positions")
    return any(isinstance(kind, Records | WholeBatch) for _, kind in found)


def _replaced(value, other, kind, replaced):
    if not isinstance(kind, Records):
        return value
    sizes = [1] * (value.dim() + 2)
    sizes[kind.axis + 1] = B
    parts = [each.unflatten(kind.axis, (-1, B, kind.inner)) for each in (value, other)]
    return torch.where(replaced.reshape(sizes), parts[1], parts[0]).reshape(value.shape)


def _close(first, second):
    return first.shape == second.shape and torch.allclose(first.double(), second.double(), equal_nan=True, rtol=1e-9)


def taken(name: str) -> str:
    """Which types of arguments the rule of `name` takes, each checked against its meaning; their bits."""
    torch.default_generator.manual_seed(0)
    every = [(case, kinds) for case in CASES if case.name == name for kinds in assignments(case.tensors(), 60)]
    return hex(int("1" + "".join(str(int(check_meaning(case, kinds))) for case, kinds in every), 2))
