"""Calls of the operations that `rule_cases` has no call of: layers, their gradients, decompositions of matrices."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from tests.verification.rule_cases import B, Case, aten, flags, positive, real, whole

CASES: list[Case] = []


def case(name, call, *tensors):
    CASES.append(Case(name, call, lambda: [make() for make in tensors]))


def backward(name: str, forward: Callable, *tensors, of: int = 0):
    """The gradient of `forward` in its argument `of`, given one of its result."""

    def call(gradient, *given):
        leaf = given[of].detach().requires_grad_()
        result = forward(*given[:of], leaf, *given[of + 1 :])
        return torch.autograd.grad(result, leaf, gradient.view(result.shape))[0]

    def made():
        given = [make() for make in tensors]
        return [torch.randn_like(forward(*given)), *given]

    CASES.append(Case(name, call, made))


# Within the last axes.
for _axes in (1, 2, 3):
    _image, _small = real(B, 2, *[4] * _axes), [2] * _axes
    if _axes > 1:
        _pool, _adaptive = (getattr(F, f"{kind}_pool{_axes}d") for kind in ("max", "adaptive_max"))
        case(f"adaptive_max_pool{_axes}d", lambda x, f=_adaptive: f(x, 2), _image)
        backward(f"adaptive_max_pool{_axes}d_backward", lambda x, f=_adaptive: f(x, 2), _image)
        case(f"max_pool{_axes}d_with_indices", lambda x, f=_pool: f(x, 2), _image)
        backward(f"max_pool{_axes}d_with_indices_backward", lambda x, f=_pool: f(x, 2), _image)
        _average, _adaptive = (getattr(F, f"{kind}_pool{_axes}d") for kind in ("avg", "adaptive_avg"))
        case(f"avg_pool{_axes}d", lambda x, f=_average: f(x, 2), _image)
        backward(f"avg_pool{_axes}d_backward", lambda x, f=_average: f(x, 2), _image)
        case(f"_adaptive_avg_pool{_axes}d", lambda x, f=_adaptive: f(x, 2), _image)
        backward(f"_adaptive_avg_pool{_axes}d_backward", lambda x, f=_adaptive: f(x, 2), _image)
        _unpool = getattr(F, f"max_unpool{_axes}d")
        case(f"max_unpool{_axes}d", lambda x, i, f=_unpool: f(x, i, 2), real(B, 2, *_small), whole(4, B, 2, *_small))
        _places = lambda axes=_axes: torch.rand(B, 2, axes, dtype=torch.float64)  # noqa: E731
        _part = getattr(torch.ops.aten, f"fractional_max_pool{_axes}d")
        _chosen = lambda x, p, f=_part, n=_small: f(x, n, n, p)[0]  # noqa: E731
        case(f"fractional_max_pool{_axes}d", _chosen, _image, _places)
        backward(f"fractional_max_pool{_axes}d_backward", _chosen, _image, _places)
    for _mode in ("reflection", "replication"):
        _pad = lambda x, m=_mode, n=_axes: F.pad(x, [1] * (2 * n), {"reflection": "reflect"}.get(m, "replicate"))  # noqa: E731
        case(f"{_mode}_pad{_axes}d", _pad, _image)
        backward(f"{_mode}_pad{_axes}d_backward", _pad, _image)
    for _mode in ("nearest", ("linear", "bilinear", "trilinear")[_axes - 1], *(["bicubic"] if _axes == 2 else [])):
        _wider = lambda x, m=_mode: F.interpolate(x, scale_factor=2, mode=m)  # noqa: E731
        _name = f"upsample_{_mode}{_axes}d"
        case(_name, _wider, _image)
        backward(f"{_name}_backward", _wider, _image)
for _axes in (1, 2):
    case(f"_upsample_nearest_exact{_axes}d", lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
         real(B, 2, *[2] * _axes))  # fmt: skip
for _mode in ("bilinear", "bicubic"):
    case(f"_upsample_{_mode}2d_aa", lambda x, m=_mode: F.interpolate(x, scale_factor=0.5, mode=m, antialias=True),
         real(B, 2, 4, 4))  # fmt: skip
case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), real(B, 2, 4, 4))
case("channel_shuffle", lambda x: aten.channel_shuffle(x, 2), real(B, 4, 2))
case("col2im", lambda x: F.fold(x, 4, 2, stride=2), real(B, 8, 4))
backward("grid_sampler_2d_backward", lambda x, g: F.grid_sample(x, g, align_corners=False), real(B, 2, 3, 3),
         real(B, 2, 2, 2))  # fmt: skip
_sampled3d = lambda x, g: F.grid_sample(x, g, align_corners=False)  # noqa: E731
case("grid_sampler_3d", _sampled3d, real(B, 2, 2, 2, 2), real(B, 2, 2, 2, 3))
backward("grid_sampler_3d_backward", _sampled3d, real(B, 2, 2, 2, 2), real(B, 2, 2, 2, 3))
case("affine_grid_generator", lambda t: aten.affine_grid_generator(t, [B, 2, 3, 3], False), real(B, 2, 3))

# Layers.
case("slow_conv3d_forward", lambda x, w: aten.slow_conv3d_forward(x, w, [2] * 3, None, [1] * 3, [0] * 3),
     real(B, 2, 3, 3, 3), real(2, 2, 2, 2, 2))  # fmt: skip
case("_slow_conv2d_forward", lambda x, w: aten._slow_conv2d_forward(x, w, [2, 2], None, [1, 1], [0, 0]),
     real(B, 2, 3, 3), real(2, 2, 2, 2))  # fmt: skip
case("mkldnn_convolution", lambda x, w: aten.mkldnn_convolution(x, w, None, [0], [1], [1], 1).double(),
     lambda: torch.randn(B, 2, 4), lambda: torch.randn(2, 2, 3))  # fmt: skip
case("_native_batch_norm_legit", lambda x, m, v: aten._native_batch_norm_legit(x, None, None, m, v, False, 0.1, 1e-5),
     real(B, 2, 2), real(2), positive(2))  # fmt: skip
case("_native_batch_norm_legit", lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5),
     real(1, 2 * B, 2))  # fmt: skip
case("_native_batch_norm_legit_no_training",
     lambda x, m, v: aten._native_batch_norm_legit_no_training(x, None, None, m, v, 0.1, 1e-5)[0], real(B, 2, 2),
     real(2), positive(2))  # fmt: skip
backward("native_batch_norm_backward", lambda x: F.instance_norm(x), real(B, 2, 3))
backward("native_batch_norm_backward", lambda x, m, v: F.batch_norm(x, m, v), real(B, 2, 3), real(2), positive(2))
backward("native_group_norm_backward", lambda x: F.group_norm(x, 2), real(B, 4, 2))
backward("native_layer_norm_backward", lambda x: F.layer_norm(x, (2,)), real(B, 2 * B, 2))
backward("embedding_dense_backward", lambda i, w: F.embedding(i, w), whole(4, B, 2), real(4, 2), of=1)
case("_embedding_bag_forward_only", lambda w, i: aten._embedding_bag_forward_only(w, i, 2 * torch.arange(B))[0],
     real(4, 2), whole(4, 2 * B))  # fmt: skip
_bag = lambda w, i: F.embedding_bag(i, w, mode="sum")  # noqa: E731
backward("_embedding_bag_backward", _bag, real(4, 2), whole(4, B, 2))
backward("_embedding_bag_per_sample_weights_backward",
         lambda i, w, s: F.embedding_bag(i, w, per_sample_weights=s, mode="sum"), whole(4, B, 2), real(4, 2),
         real(B, 2), of=2)  # fmt: skip
_attended = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)  # noqa: E731
backward("_scaled_dot_product_flash_attention_for_cpu_backward", _attended, real(B, 2, 2, 2), real(B, 2, 2, 2),
         real(B, 2, 2, 2))  # fmt: skip
case("rrelu_with_noise", lambda x: aten.rrelu_with_noise(x, torch.zeros_like(x), 0.2, 0.2, True), real(B, 2))
case("rrelu_with_noise_functional",
     lambda x: aten.rrelu_with_noise_functional(x, torch.zeros_like(x), 0.2, 0.2, True)[0], real(B, 2))  # fmt: skip
_lstm = torch.nn.LSTM(2, 2)


def _recurrent(x):
    return _lstm(x)[0]


case("mkldnn_rnn_layer", lambda x: _recurrent(x.float()), real(4, B, 2))
backward("mkldnn_rnn_layer_backward", lambda x: _recurrent(x.float()), real(4, B, 2))

case("_pack_padded_sequence", lambda x: aten._pack_padded_sequence(x, torch.full((B,), 2), True)[0], real(B, 2, 3))

# Losses.
for _reduction in ("none", "sum", "mean"):
    for _loss in ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
        backward(f"{_loss}_backward", lambda x, y, f=_loss, r=_reduction: getattr(F, f)(x, y, reduction=r), real(B, 2),
                 positive(B, 2))  # fmt: skip
    backward("binary_cross_entropy_backward", lambda x, y, r=_reduction: F.binary_cross_entropy(x, y, reduction=r),
             positive(B, 2), positive(B, 2))  # fmt: skip
    backward("multi_margin_loss_backward", lambda x, y, r=_reduction: F.multi_margin_loss(x, y, reduction=r),
             real(B, B), whole(B, B))  # fmt: skip
    _labels = lambda: torch.tensor([[0, 1, -1], [2, -1, 0], [1, 0, 2]])  # noqa: E731
    _margin = lambda x, y, r=_reduction: F.multilabel_margin_loss(x, y, reduction=r)  # noqa: E731
    case("multilabel_margin_loss_forward", _margin, real(B, B), _labels)
    backward("multilabel_margin_loss_backward", _margin, real(B, B), _labels)
    backward("nll_loss2d_backward", lambda x, y, r=_reduction: F.nll_loss(x, y, reduction=r), real(B, B, 2, 2),
             whole(B, B, 2, 2))  # fmt: skip
_lengths = lambda: torch.full((B,), 4)  # noqa: E731


def _ctc(x, y):
    return F.ctc_loss(x.log_softmax(2), y, _lengths(), torch.full((B,), 2), reduction="none")


case("_ctc_loss", _ctc, real(4, B, 4), lambda: 1 + torch.randint(0, 3, (B, 2)))
backward("_ctc_loss_backward", _ctc, real(4, B, 4), lambda: 1 + torch.randint(0, 3, (B, 2)))

# Along axes.
for _dim in (0, 1):
    for _name in ("aminmax", "argmin", "cummin", "mode", "nanmedian", "std", "std_mean"):
        case(_name, lambda x, n=_name, d=_dim: getattr(torch, n)(x, dim=d), real(B, 2 * B))
    case("norm", lambda x, d=_dim: aten.norm.ScalarOpt_dim(x, 2, [d]), real(B, 2 * B))
    backward("glu_backward", lambda x, d=_dim: F.glu(x, d), real(2 * B, 2 * B))
    backward("_log_softmax_backward_data", lambda x, d=_dim: x.log_softmax(d), real(B, B))
    case("_fft_c2c", lambda x, d=_dim: torch.view_as_real(torch.fft.fft(torch.complex(x, x), dim=d)), real(B, 2 * B))
    case("_fft_c2r", lambda x, d=_dim: torch.fft.irfft(torch.complex(x, x), dim=d), real(B, 2 * B))
    case("_masked_softmax", lambda x, m, d=_dim: aten._masked_softmax(x, m, d), real(B, 2 * B), flags(B, 2 * B))
    case("index_copy", lambda x, s, d=_dim: x.index_copy(d, torch.arange(B), s), real(B, B), real(B, B))
    case("index_fill", lambda x, i, d=_dim: x.index_fill(d, i, 2.0), real(B, B), whole(B, 2))
    case("index_reduce", lambda x, s, d=_dim: aten.index_reduce(x, d, torch.arange(B), s, "prod"), real(B, B),
         real(B, B))  # fmt: skip
    case("scatter_reduce", lambda x, i, s, d=_dim: x.scatter_reduce(d, i, s, "sum"), real(B, B), whole(B, B, B),
         real(B, B))  # fmt: skip
    backward("unfold_backward", lambda x, d=_dim: x.unfold(d, 2, 1), real(B, 2 * B))
backward("diagonal_backward", lambda x: x.diagonal(0, 1, 2), real(B, 2, 2))
case("diag_embed", aten.diag_embed.default, real(B, 2))

# Products and matrices.
case("_addmm_activation", aten._addmm_activation.default, real(2), real(B, B), real(B, 2))
case("addmv", aten.addmv.default, real(B), real(B, 2), real(2))
case("vdot", aten.vdot.default, real(B), real(B))
backward("_cdist_backward", lambda x, y: torch.cdist(x, y), real(2, B, 2), real(2, B, 2))
case("_euclidean_dist", aten._euclidean_dist.default, real(B, 2), real(2, 2))
case("triu", aten.triu.default, real(B, B, B))
_square = lambda: torch.randn(B, 2, 2, dtype=torch.float64) + 3 * torch.eye(2, dtype=torch.float64)  # noqa: E731
for _name, _call in {
    "linalg_cholesky_ex": lambda x: aten.linalg_cholesky_ex(x @ x.mT),
    "_linalg_eigh": lambda x: aten._linalg_eigh(x @ x.mT)[0],
    "_linalg_svd": lambda x: aten._linalg_svd(x)[1],
    "linalg_qr": lambda x: aten.linalg_qr(x),
    "_linalg_det": lambda x: aten._linalg_det(x)[0],
    "_linalg_slogdet": lambda x: aten._linalg_slogdet(x)[1],
    "linalg_lu_factor_ex": lambda x: aten.linalg_lu_factor_ex(x),
    "linalg_lu": lambda x: aten.linalg_lu(x),
    "linalg_pinv": lambda x: aten.linalg_pinv.atol_rtol_tensor(x),
    "linalg_matrix_exp": lambda x: aten.linalg_matrix_exp(x),
    "cholesky_inverse": lambda x: aten.cholesky_inverse(x.tril()),
    "linalg_eig": lambda x: torch.view_as_real(aten.linalg_eig(x @ x.mT)[0]),
}.items():
    case(_name, _call, _square)
for _name, _call in {
    "_linalg_solve_ex": lambda x, y: aten._linalg_solve_ex(x, y)[0],
    "linalg_solve_triangular": lambda x, y: aten.linalg_solve_triangular(x, y, upper=True),
    "triangular_solve": lambda x, y: aten.triangular_solve(y, x)[0],
    "cholesky_solve": lambda x, y: aten.cholesky_solve(y, x.tril()),
}.items():
    case(_name, _call, _square, real(B, 2, 1))
case("linalg_lu_solve", lambda x, y: aten.linalg_lu_solve(*aten.linalg_lu_factor_ex(x)[:2], y), _square, real(B, 2, 1))
_upright = lambda: torch.randn(2, 2, dtype=torch.float64) + 4 * torch.eye(2, dtype=torch.float64)  # noqa: E731
for _left, _shape in ((True, (2, B)), (False, (B, 2))):
    case("_linalg_solve_ex", lambda a, y, s=_left: aten._linalg_solve_ex(a, y, left=s)[0], _upright, real(*_shape))
    _triangular = lambda a, y, s=_left: aten.linalg_solve_triangular(a, y, upper=True, left=s)  # noqa: E731
    case("linalg_solve_triangular", _triangular, _upright, real(*_shape))
    _factored = lambda a, y, s=_left: aten.linalg_lu_solve(*aten.linalg_lu_factor_ex(a)[:2], y, left=s)  # noqa: E731
    case("linalg_lu_solve", _factored, _upright, real(*_shape))
case("_linalg_solve_ex", lambda a, y: aten._linalg_solve_ex(a, y)[0], real(B, B), real(B))
case("linalg_cross", aten.linalg_cross, real(B, 3), real(B, 3))
case("linalg_cross", lambda x, y: aten.linalg_cross(x, y, dim=0), real(3, B), real(3, B))
case("rot90", lambda x: aten.rot90(x, 1, [1, 2]), real(B, 2, B))
case("rot90", lambda x: aten.rot90(x, 1, [0, 1]), real(B, B, 2))
case("_unsafe_index", lambda x, i: aten._unsafe_index(x, [None, i]), real(B, B), whole(B, 2))
case("_unsafe_index_put", lambda x, v: aten._unsafe_index_put(x, [None, torch.tensor([0, 2])], v), real(B, B),
     real(B, 2))  # fmt: skip
case("_index_put_impl", lambda x, v: aten._index_put_impl(x, [None, torch.tensor([0, 2])], v), real(B, B), real(B, 2))

case("isin", aten.isin.Tensor_Tensor, whole(9, B, 2), whole(9, B))

# Numbers, rows and counts of all records together.
for _name in ("_is_all_true", "_is_any_true"):
    case(_name, getattr(aten, _name).default, flags(B, 2))
for _name in ("nonzero", "trace"):
    case(_name, getattr(aten, _name).default, real(B, B))
case("bincount", aten.bincount.default, whole(B, B))
case("histc", aten.histc.default, real(B, 2))
case("histogram", lambda x: aten.histogram.bin_ct(x, 4)[0], real(B, 2))
case("masked_select", aten.masked_select.default, real(B, 2), flags(B, 2))
case("_unique", lambda x: aten._unique(x)[0], whole(9, B, 2))
case("_unique2", lambda x: aten._unique2(x)[0], whole(9, B, 2))
case("unique_dim", lambda x: aten.unique_dim(x, 0)[0], whole(9, B, 2))
case("unique_consecutive", lambda x: aten.unique_consecutive(x)[0], whole(9, B, 2))
case("repeat_interleave", lambda x: aten.repeat_interleave.Tensor(x), whole(3, B))
case("_pdist_forward", aten._pdist_forward.default, real(B, 2))
