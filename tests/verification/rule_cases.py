"""Small calls of every operation that has a rule, for all types that its arguments may have."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

aten = torch.ops.aten
B = 3


@dataclass(frozen=True)
class Case:
    """`call(*tensors)` calls one operation; `tensors()` are its arguments, of sizes that may hold records."""

    name: str
    call: Callable[..., object]
    tensors: Callable[[], list[Tensor]]


def real(*shape):
    return lambda: torch.randn(shape, dtype=torch.float64)


def whole(high, *shape):
    return lambda: torch.randint(0, high, shape)


def flags(*shape):
    return lambda: torch.rand(shape) < 0.5


def positive(*shape):
    return lambda: 0.1 + 0.8 * torch.rand(shape, dtype=torch.float64)


CASES: list[Case] = []


def case(name, call, *tensors):
    CASES.append(Case(name, call, lambda: [make() for make in tensors]))


# Entry by entry, with broadcasting.
case("add", aten.add.Tensor, real(B, 2 * B), real(B, 2 * B))
case("mul", aten.mul.Tensor, real(2, B, B), real(B, 1))
case("where", aten.where.self, flags(B, 2), real(B, 2), real(2))
case("masked_fill", lambda x, m: aten.masked_fill.Scalar(x, m, 0.5), real(B, B), flags(B, B))
case("clamp", aten.clamp.Tensor, real(B, 2), real(B, 2), real(1))
case("_to_copy", lambda x: aten._to_copy.default(x, dtype=torch.float32), real(2, B))
case("clone", aten.clone.default, real(B, 2))
case("copy", lambda x, y: torch.zeros_like(x).copy_(y), real(B, 2), real(B, 2))
case("gelu", aten.gelu.default, real(B, 2))
case("addcmul", aten.addcmul.default, real(B, 2), real(B, 1), real(2))
case("lerp", aten.lerp.Tensor, real(B, 2), real(B, 2), real(B, 2))
case("searchsorted", lambda s, x: aten.searchsorted.Tensor(s.sort(-1)[0], x), real(B, 4), real(B, 2))
case(
    "searchsorted",
    lambda s, x: aten.searchsorted.Tensor(torch.arange(4.0).double(), x) + 0 * s.sum(),
    real(1),
    real(B, 2),
)
case("bucketize", aten.bucketize.Tensor, real(B, 2), lambda: torch.arange(-3.0, 3.0).double())
for _name in ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
    for _reduction in (0, 1, 2):
        case(_name, lambda x, y, n=_name, r=_reduction: getattr(aten, n)(x, y, r), real(B, 2), real(B, 2))
case(
    "binary_cross_entropy",
    lambda x, y: aten.binary_cross_entropy(torch.sigmoid(x), y, None, 0),
    real(B, 2),
    positive(B, 2),
)
for _reduction in (0, 1, 2):
    case(
        "binary_cross_entropy_with_logits",
        lambda x, y, r=_reduction: aten.binary_cross_entropy_with_logits(x, y, None, None, r),
        real(B, 2),
        positive(B, 2),
    )
    case(
        "mse_loss_backward",
        lambda g, x, y, r=_reduction: aten.mse_loss_backward(g, x, y, r),
        real(B, 2),
        real(B, 2),
        real(B, 2),
    )

# Along axes.
for _name in ("sum", "mean", "amax", "amin", "logsumexp", "any", "all", "nansum", "prod", "count_nonzero"):
    for _dim in (0, 1, -1):
        for _keep in (False, True):
            if _name == "count_nonzero":
                case(_name, lambda x, d=_dim: aten.count_nonzero.dim_IntList(x, [d]), flags(B, 2 * B, 2))
                continue
            _at = {
                "sum": "dim_IntList",
                "mean": "dim",
                "any": "dim",
                "all": "dim",
                "nansum": "default",
                "prod": "dim_int",
            }
            _overload = _at.get(_name, "default")
            _one = _name in ("any", "all", "prod")
            case(
                _name,
                lambda x, n=_name, d=_dim, k=_keep, a=_overload, o=_one: getattr(getattr(aten, n), a)(
                    x, d if o else [d], k
                ),
                flags(B, 2 * B, 2) if "a" in _name[:1] and _one else real(B, 2 * B, 2),
            )
case("sum", aten.sum.default, real(B, 2))
case("sum", lambda x: aten.sum.dim_IntList(x, [0, 2]), real(2, B, 2, B))
for _dim in (0, 1):
    case("var", lambda x, d=_dim: aten.var.correction(x, [d], correction=0), real(B, 2 * B))
    case("var_mean", lambda x, d=_dim: aten.var_mean.correction(x, [d], correction=0, keepdim=True), real(B, 2 * B))
    case("max", lambda x, d=_dim: aten.max.dim(x, d), real(B, 2 * B))
    case("max", lambda x, d=_dim: aten.max.dim(x, d, True), real(B, 2 * B))
    case("min", lambda x, d=_dim: aten.min.dim(x, d, True), real(B, 2 * B))
    case("argmax", lambda x, d=_dim: aten.argmax(x, d), real(B, 2 * B))
    case("linalg_vector_norm", lambda x, d=_dim: aten.linalg_vector_norm(x, 2, [d], True), real(B, 2 * B))
    case("median", lambda x, d=_dim: aten.median.dim(x, d), real(B, B))
    case("kthvalue", lambda x, d=_dim: aten.kthvalue(x, 2, d), real(B, B))
    for _name in ("_softmax", "_log_softmax"):
        case(_name, lambda x, n=_name, d=_dim: getattr(aten, n)(x, d, False), real(B, 2 * B))
    for _name in ("cumsum", "cumprod", "logcumsumexp", "sort", "cummax", "_safe_softmax"):
        case(_name, lambda x, n=_name, d=_dim: getattr(aten, n)(x, d), real(B, 2 * B))
    case("flip", lambda x, d=_dim: aten.flip(x, [d]), real(B, 2 * B))
    case("topk", lambda x, d=_dim: aten.topk(x, B, d), real(B, 2 * B))
    case("roll", lambda x, d=_dim: aten.roll(x, [1], [d]), real(B, 2 * B))
    case("glu", lambda x, d=_dim: aten.glu(x, d), real(2 * B, 2 * B))
    case("renorm", lambda x, d=_dim: aten.renorm(x, 2.0, d, 0.5), real(B, 2 * B))
    case(
        "_softmax_backward_data",
        lambda g, y, d=_dim: aten._softmax_backward_data(g, y, d, torch.float64),
        real(B, B),
        real(B, B),
    )
    case("index_select", lambda x, i, d=_dim: aten.index_select(x, d, i), real(B, B), whole(B, B))
    case("index_select", lambda x, d=_dim: aten.index_select(x, d, torch.arange(B)), real(B, B))
    case("gather", lambda x, i, d=_dim: aten.gather(x, d, i), real(B, B), whole(B, B, B))
    case(
        "scatter",
        lambda x, i, s, d=_dim: aten.scatter.src(x, d, i, s),
        real(B, B),
        lambda: torch.arange(B).expand(B, B).clone(),
        real(B, B),
    )
    case("scatter_add", lambda x, i, s, d=_dim: aten.scatter_add(x, d, i, s), real(B, B), whole(B, B, B), real(B, B))
    case("index_add", lambda x, i, s, d=_dim: aten.index_add(x, d, i, s), real(B, B), whole(B, B), real(B, B))
    case("cat", lambda x, y, d=_dim: aten.cat([x, y], d), real(B, B), real(B, B))
    case("select_backward", lambda g, d=_dim: aten.select_backward(g, [B, 2, B] if d else [2, B, B], d, 1), real(B, B))
for _dim in (0, 1, 2):
    case("stack", lambda x, y, d=_dim: aten.stack([x, y], d), real(B, B), real(B, B))
case("roll", lambda x: aten.roll(x, [1]), real(B, 2))
case("tril", aten.tril, real(B, B, B))
case("multinomial", lambda x: aten.multinomial(x, B, True), lambda: 1e-12 + torch.eye(B).double()[torch.randperm(B)])
case("repeat", lambda x: aten.repeat(x, [2, 2, 1]), real(B, 2))
case("constant_pad_nd", lambda x: aten.constant_pad_nd(x, [1, 0]), real(B, B))
case("constant_pad_nd", lambda x: aten.constant_pad_nd(x, [0, 0, B, 0]), real(B, B))
case("slice_backward", lambda g: aten.slice_backward(g, [B, 4], 1, 1, 3, 1), real(B, 2))
case("slice_backward", lambda g: aten.slice_backward(g, [2 * B, 2], 0, 1, B + 1, 1), real(B, 2))
case("slice_backward", lambda g: aten.slice_backward(g, [2 * B, 2], 0, B, 2 * B, 1), real(B, 2))
case("slice_backward", lambda g: aten.slice_backward(g, [2, 2 * B], 1, 1, B + 1, 1), real(2, B))
case("_fft_r2c", lambda x: torch.view_as_real(aten._fft_r2c(x, [1], 0, False)), real(B, 2 * B))
case("linalg_inv_ex", lambda x: aten.linalg_inv_ex(x + 3 * torch.eye(B).double()), real(B, B, B))
case("_cdist_forward", lambda x, y: aten._cdist_forward(x, y, 2.0, None), real(B, B, 2), real(B, B, 2))

# Products.
case("mm", aten.mm, real(2 * B, B), real(B, B))
case("addmm", aten.addmm, real(B), real(B, B), real(B, B))
case("addmm", aten.addmm, real(2, B), real(2, 2), real(2, B))
case("bmm", aten.bmm, real(B, B, 2), real(B, 2, B))
case("bmm", aten.bmm, real(B, B, B), real(B, B, B))
case("baddbmm", aten.baddbmm, real(B, 1, B), real(B, 2, B), real(B, B, B))
case("mv", aten.mv, real(B, B), real(B))
case("dot", aten.dot, real(B), real(B))
case(
    "_trilinear",
    lambda x, y, w: aten._trilinear(x, w, y, [1, 3], [0], [1, 2], [2, 3]),
    real(B, 2),
    real(B, 2),
    real(B, 2, 2),
)

# Layers.
case(
    "convolution",
    lambda x, w, b: aten.convolution(x, w, b, [1], [1], [1], False, [0], 1),
    real(B, B, 4),
    real(2, B, 3),
    real(2),
)
case(
    "convolution", lambda x, w: aten.convolution(x, w, None, [1], [1], [1], False, [0], B), real(2, B, 4), real(B, 1, 3)
)
case(
    "convolution_backward",
    lambda g, x, w: aten.convolution_backward(g, x, w, [2], [1], [1], [1], False, [0], 1, [True, True, True]),
    real(B, 2, 4),
    real(B, 2, 4),
    real(2, 2, 3),
)
case("max_pool2d_with_indices", lambda x: aten.max_pool2d_with_indices(x, [2, 2]), real(2, B, B + 1, 2 * B))
case("avg_pool2d", lambda x: aten.avg_pool2d(x, [2, 2]), real(B, B + 1, 2 * B))
case("_adaptive_avg_pool2d", lambda x: aten._adaptive_avg_pool2d(x, [B, 2]), real(B, 2, B, B))
case("upsample_nearest1d", lambda x: aten.upsample_nearest1d(x, [2 * B]), real(B, 2, B))
case("pixel_shuffle", lambda x: aten.pixel_shuffle(x, 2), real(B, 4, 2, B))
case("im2col", lambda x: aten.im2col(x, [2, 2], [1, 1], [0, 0], [1, 1]), real(B, 2, B, B))
case("reflection_pad1d", lambda x: aten.reflection_pad1d(x, [B, 0]), real(B, 2, 2 * B))
case("grid_sampler_2d", lambda x, g: aten.grid_sampler_2d(x, g, 0, 0, False), real(B, 2, B, B), real(B, 2, 2, 2))
case(
    "native_layer_norm", lambda x, w: aten.native_layer_norm(x, [2 * B], w, None, 1e-5), real(B, B, 2 * B), real(2 * B)
)
case("native_layer_norm", lambda x: aten.native_layer_norm(x, [B, 2], None, None, 1e-5), real(B, B, 2))
case(
    "native_group_norm",
    lambda x, w: aten.native_group_norm(x, w, None, B, 2 * B, 2, 2, 1e-5),
    real(B, 2 * B, 2),
    real(2 * B),
)
case(
    "native_batch_norm",
    lambda x, w: aten.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5),
    real(1, 2 * B, 2),
    real(2 * B),
)
case(
    "native_batch_norm",
    lambda x, w: aten.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5),
    real(B, 2, 2),
    real(2),
)
case(
    "native_batch_norm",
    lambda x, m, v: aten.native_batch_norm(x, None, None, m, v, False, 0.1, 1e-5),
    real(B, 2, 2),
    real(2),
    positive(2),
)
case("native_dropout", lambda x: aten.native_dropout(x, 0.0, True), real(B, 2))
case("embedding", aten.embedding, real(2 * B, 2), whole(4, B, 2 * B))
case(
    "_embedding_bag",
    lambda w, i: aten._embedding_bag(w, i, 2 * torch.arange(B), False, 0)[0],
    real(4, 2),
    whole(4, 2 * B),
)
case(
    "_embedding_bag",
    lambda w, i, o: aten._embedding_bag(w, i, o.sort()[0], False, 0)[0],
    real(4, 2),
    whole(4, 2 * B),
    lambda: torch.tensor([0, 1, 2]),
)
case(
    "_scaled_dot_product_flash_attention_for_cpu",
    aten._scaled_dot_product_flash_attention_for_cpu,
    real(B, B, B, 2),
    real(B, B, B, 2),
    real(B, B, B, 2),
)
case(
    "_scaled_dot_product_flash_attention_for_cpu",
    lambda q, k, v, m: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=m),
    real(B, 2, B, 2),
    real(B, 2, B, 2),
    real(B, 2, B, 2),
    real(B, 1, B, B),
)
for _reduction in (0, 1, 2):
    case(
        "nll_loss_forward",
        lambda x, y, r=_reduction: aten.nll_loss_forward(x, y, None, r, -100)[0],
        real(B, B),
        whole(B, B),
    )
    case(
        "nll_loss2d_forward",
        lambda x, y, r=_reduction: aten.nll_loss2d_forward(x, y, None, r, -100)[0],
        real(B, B, 2, B),
        whole(B, B, 2, B),
    )
    case(
        "nll_loss_backward",
        lambda g, x, y, w, r=_reduction: aten.nll_loss_backward(g, x, y, None, r, -100, w),
        lambda r=_reduction: torch.randn(B).double() if not r else torch.randn(()).double(),
        real(B, B),
        whole(B, B),
        lambda: torch.tensor(3.0).double(),
    )
    case(
        "multi_margin_loss",
        lambda x, y, r=_reduction: aten.multi_margin_loss(x, y, 1, 1.0, None, r),
        real(B, B),
        whole(B, B),
    )

# Indexing.
case("index", lambda x, i: x[i], real(B, B), whole(B, B))
case("index", lambda x, i: x[torch.arange(B), i], real(B, B, 2), whole(B, B))
case("index", lambda x, i: x[:, torch.arange(B), i], real(2, B, B), whole(B, B))
case("index", lambda x, i: x[torch.arange(B)[:, None], i], real(B, B), whole(B, B, 2))
case("index", lambda x, i: x[i, :, torch.arange(B)], real(B, 2, B), whole(B, B))
case("index", lambda x, i, j: x[:, i, j], real(B, B, B), whole(B, B), whole(B, B))
case("index", lambda x, m: x[m], real(B, 2), flags(B))
case("index_put", lambda x, i, v: x.index_put((i,), v), real(B, 2), whole(B, B), real(B, 2))
case("index_put", lambda x, i, v: x.index_put((torch.arange(B), i), v), real(B, B), whole(B, B), real(B))
case(
    "index_put", lambda x, i, v: x.index_put((torch.arange(B), i), v, accumulate=True), real(B, B), whole(B, B), real(B)
)
case("index_put", lambda x, m, v: x.index_put((m,), v), real(B, 2), flags(B), real(1))
case("index_put", lambda x, v: x.index_put((torch.tensor([0, 2]),), v), real(B, 2 * B), real(2, 2 * B))
case("index_put", lambda x, v: aten.index_put(x, [None, torch.tensor([0, 2])], v), real(B, B), real(B, 2))
case("index_put", lambda x, i, v: x.index_put((i,), v, accumulate=True), real(B, 2), whole(B, B), real(B, 2))
