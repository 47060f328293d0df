"""Programs that mix records, keep them, or read numbers of them: name -> (program, operation that is refused).

`x` has shape (8, 6), `y` classes 0, 1, 2 of shape (8,). "read" stands for a number that Python reads, "unknown" for a
tensor whose origin nobody knows: neither is refused, and neither stays proven.
"""

import math
import threading
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
BANK = torch.randn(5, 6)
STATE = SimpleNamespace(mean=torch.zeros(6), queue=[], table=torch.zeros(3, 6), count=0.0)


def ce(outputs, y):
    return F.cross_entropy(outputs, y, reduction="none")


WRONG = {}


def wrong(operation):
    def enter(program):
        WRONG[program.__name__] = program, operation
        return program

    return enter


# Losses of the whole batch.
@wrong("nll_loss_forward")
def mean_loss(x, y):
    return F.cross_entropy(NET(x), y)


@wrong("nll_loss_forward")
def sum_loss(x, y):
    return F.cross_entropy(NET(x), y, reduction="sum")


@wrong("mean")
def mean_of_losses(x, y):
    return ce(NET(x), y).mean()


@wrong("mse_loss")
def mean_squared_error(x, y):
    return F.mse_loss(NET(x)[:, 0], y.float())


@wrong("binary_cross_entropy_with_logits")
def mean_of_binary_losses(x, y):
    return F.binary_cross_entropy_with_logits(NET(x)[:, 0], y.clamp(max=1).float())


@wrong("mm")
def contrastive(x, y):
    z = F.normalize(NET(x), dim=1)
    return F.cross_entropy(z @ z.T / 0.1, torch.arange(len(x)), reduction="none")


@wrong("mm")
def contrastive_with_detached_keys(x, y):
    z = F.normalize(NET(x), dim=1)
    return F.cross_entropy(z @ z.detach().T / 0.1, torch.arange(len(x)), reduction="none")


@wrong("mm")
def clip_loss(x, y):
    a, b = F.normalize(NET(x), dim=1), F.normalize(NET(x.flip(1)), dim=1)
    return (torch.logsumexp(a @ b.T, 1) - (a * b).sum(1)).reshape(-1)


@wrong("sub")
def pairs_by_broadcasting(x, y):
    z = NET(x)
    return (z[:, None] - z[None]).square().sum(2)[:, 0]


@wrong("_cdist_forward")
def distances_between_records(x, y):
    return torch.cdist(NET(x), NET(x)).sum(1)


@wrong("_pdist_forward")
def condensed_distances(x, y):
    return ce(NET(x), y) + F.pdist(x).sum()


@wrong("roll")
def triplet_with_next_record(x, y):
    z = NET(x)
    return F.triplet_margin_loss(z, z, z.roll(1, 0), reduction="none")


@wrong("mean")
def focal_with_batch_mean(x, y):
    loss = ce(NET(x), y)
    return loss * (loss.detach() / loss.detach().mean())


@wrong("max")
def weighted_by_the_largest_loss(x, y):
    loss = ce(NET(x), y)
    return loss / loss.max()


@wrong("_softmax")
def softmax_over_the_losses(x, y):
    loss = ce(NET(x), y)
    return loss * torch.softmax(loss, 0)


@wrong("topk")
def hard_examples_alone(x, y):
    return ce(NET(x), y).topk(4).values


@wrong("sort")
def trimmed_loss(x, y):
    return ce(NET(x), y).sort().values[:6]


@wrong("median")
def loss_above_the_median(x, y):
    loss = ce(NET(x), y)
    return torch.where(loss > loss.median(), loss, 0)


@wrong("cumsum")
def curriculum_by_cumulative_loss(x, y):
    return ce(NET(x), y).cumsum(0)


@wrong("bincount")
def class_weights_of_the_batch(x, y):
    weights = 1.0 / torch.bincount(y, minlength=3).clamp(min=1)
    return ce(NET(x), y) * weights[y]


@wrong("sum")
def share_of_the_class(x, y):
    share = F.one_hot(y, 3).float().sum(0)
    return ce(NET(x), y) / share[y]


@wrong("mean")
def batch_baseline(x, y):
    loss = ce(NET(x), y)
    return loss - loss.detach().mean()


@wrong("std")
def standardised_advantages(x, y):
    advantage = x[:, 0]
    return ce(NET(x), y) * advantage / (1e-6 + advantage.std())


@wrong("var")
def variance_regulariser(x, y):
    return ce(NET(x), y) + NET(x).var(0).sum()


@wrong("mm")
def covariance_regulariser(x, y):
    z = NET(x)
    return ce(z, y) + (z.T @ z).square().sum()


@wrong("mean")
def mean_discrepancy(x, y):
    z = NET(x)
    return ce(z, y) + (z.mean(0) - z).square().sum(1)


@wrong("linalg_vector_norm")
def divided_by_the_norm_of_all(x, y):
    return ce(NET(x / x.norm()), y)


# Layers over the batch.
@wrong("native_batch_norm")
def batch_norm(x, y):
    return ce(NET[2](nn.BatchNorm1d(8)(NET[0](x))), y)


@wrong("native_batch_norm")
def batch_norm_without_statistics(x, y):
    return ce(NET(nn.BatchNorm1d(6, track_running_stats=False)(x)), y)


@wrong("native_batch_norm")
def batch_norm_of_images(x, y):
    return nn.BatchNorm2d(3)(x.view(8, 3, 2, 1).expand(8, 3, 2, 2)).sum((1, 2, 3))


@wrong("native_layer_norm")
def layer_norm_of_all(x, y):
    return F.layer_norm(x, x.shape)


@wrong("native_layer_norm")
def layer_norm_over_transposed(x, y):
    return F.layer_norm(x.T, (8,)).T


@wrong("mkldnn_rnn_layer")
def batch_as_a_sequence(x, y):
    return nn.LSTM(6, 3)(x.unsqueeze(1))[0].squeeze(1)


@wrong("_scaled_dot_product_flash_attention_for_cpu")
def attention_over_the_batch(x, y):
    q = x.view(1, 1, 8, 6)
    return F.scaled_dot_product_attention(q, q, q).view(8, 6)


@wrong("mm")
def soft_nearest_neighbours(x, y):
    return torch.softmax(x @ x.T, 1) @ x


@wrong("convolution")
def convolution_over_the_batch(x, y):
    return F.conv1d(x.T.unsqueeze(0), torch.ones(6, 1, 3), padding=1, groups=6)[0].T


@wrong("avg_pool2d")
def pooling_over_the_batch(x, y):
    return F.avg_pool1d(x.T.unsqueeze(0), 3, 1, 1)[0].T


@wrong("native_group_norm")
def group_norm_of_an_unbatched_image(x, y):
    return F.group_norm(x.view(1, 8, 6), 2).view(8, 6)


@wrong("mean")
def root_mean_square_of_the_batch(x, y):
    return x * torch.rsqrt(x.square().mean() + 1e-6)


@wrong("amax")
def scaled_by_the_largest_entry(x, y):
    return x / x.abs().amax((0, 1))


@wrong("aminmax")
def quantised_to_the_range_of_the_batch(x, y):
    low, high = torch.aminmax(x)
    return ((x - low) / (high - low) * 255).round()


@wrong("mean")
def centred(x, y):
    return ce(NET(x - x.mean(0)), y)


@wrong("mean")
def centred_by_class(x, y):
    return ce(NET(x - x.mean(0, keepdim=True).detach()), y)


@wrong("_linalg_svd")
def projected_on_components(x, y):
    _, _, v = torch.linalg.svd(x, full_matrices=False)
    return x @ v.T


@wrong("mm")
def whitened(x, y):
    return x @ torch.linalg.inv(x.T @ x + torch.eye(6))


@wrong("linalg_qr")
def orthogonalised(x, y):
    return torch.linalg.qr(x)[0]


@wrong("_fft_r2c")
def fourier_over_the_batch(x, y):
    return torch.fft.rfft(x, dim=0).abs()


# Other records by index or order.
@wrong("flip")
def mixup_with_reversed(x, y):
    return ce(NET(0.5 * x + 0.5 * x.flip(0)), y)


@wrong("roll")
def mixup_with_rolled(x, y):
    return ce(NET(0.5 * x + 0.5 * x.roll(1, 0)), y)


@wrong("roll")
def rolled_flat(x, y):
    return ce(NET(x.roll(1)), y)


@wrong("index")
def mixup_with_permuted(x, y):
    return ce(NET(0.5 * x + 0.5 * x[torch.randperm(8)]), y)


@wrong("index")
def mixup_half_of_the_time(x, y):
    mixed = torch.where(torch.rand(()) < 2, x[torch.randperm(8)], x)
    return ce(NET(mixed), y)


@wrong("index_select")
def sorted_by_index_select(x, y):
    return x.index_select(0, torch.arange(7, -1, -1))


@wrong("sort")
def sorted_by_label(x, y):
    return x[y.argsort(dim=-1, stable=True) * 0 + torch.arange(8)]


@wrong("add")
def plus_the_first(x, y):
    return ce(NET(x + x[0]), y)


@wrong("add")
def plus_the_first_kept(x, y):
    return ce(NET(x + x[:1]), y)


@wrong("slice")
def shifted_by_slices(x, y):
    return torch.cat([x[1:], x[:1]])


@wrong("slice")
def shifted_by_a_doubled_batch(x, y):
    return NET(torch.cat([x, x]))[1:9]


@wrong("slice")
def halves_swapped_by_weight(x, y):
    return x[:4] + x[4:]


@wrong("gather")
def gathered_along_the_batch(x, y):
    return x.gather(0, y[:, None].expand(8, 6))


@wrong("index")
def indexed_by_label(x, y):
    return x + x[y]


@wrong("sort")
def sorted_columns(x, y):
    return x.sort(0).values


@wrong("stack")
def stacked_in_another_order(x, y):
    return torch.stack(list(x)[::-1])


@wrong("add")
def loop_with_the_one_before(x, y):
    rows = list(x)
    return torch.stack([rows[i] + rows[i - 1] for i in range(8)])


@wrong("stack")
def loop_with_weights_by_number(x, y):
    return torch.stack([row * i for i, row in enumerate(x)])


@wrong("copy_")
def cut_and_paste(x, y):
    mixed = x.clone()
    mixed[:, :3] = x[0, :3]
    return mixed


@wrong("fill_")
def first_record_blanked(x, y):
    changed = x.clone()
    changed[0] = 0
    return changed


@wrong("index_add")
def sums_by_class(x, y):
    sums = torch.zeros(3, 6).index_add(0, y, x)
    return x - sums[y]


@wrong("scatter_add")
def scattered_by_class(x, y):
    sums = torch.zeros(3, 6).scatter_add(0, y[:, None].expand(8, 6), x)
    return x - sums[y]


@wrong("index_put_")
def last_of_the_class(x, y):
    table = torch.zeros(3, 6)
    table[y] = x
    return x - table[y]


@wrong("as_strided")
def overlapping_memory(x, y):
    return torch.as_strided(x, (8, 6), (6, 1), 0) + torch.as_strided(x, (7, 6), (6, 1), 6).mean(0)


@wrong("slice")
def unfolded_windows(x, y):
    windows = x.unfold(0, 2, 1)
    return x[:7] + windows[..., 1]


# Positions.
@wrong("mul")
def weights_by_position(x, y):
    return ce(NET(x), y) * torch.tensor([1.0, -1.0] * 4)


@wrong("mul")
def weights_by_counting(x, y):
    return ce(NET(x), y) * torch.linspace(0, 1, 8)


@wrong("add")
def position_as_a_feature(x, y):
    return x + torch.arange(8)[:, None]


@wrong("where")
def every_other_record(x, y):
    return torch.where(torch.arange(8)[:, None] % 2 == 0, x, -x)


@wrong("masked_fill")
def first_masked(x, y):
    return x.masked_fill((torch.arange(8) == 0)[:, None], 0)


@wrong("addmm")
def bias_by_position(x, y):
    return torch.addmm(torch.arange(8.0)[:, None], x, torch.ones(6, 2))


@wrong("bmm")
def matrix_by_position(x, y):
    return torch.bmm(x[:, None], torch.arange(8.0)[:, None, None].expand(8, 6, 2))[:, 0]


@wrong("mul")
def order_of_a_permutation(x, y):
    return x * torch.randperm(8)[:, None]


@wrong("mul")
def order_of_sorted_draws(x, y):
    return x * torch.rand(8).sort().values[:, None]


@wrong("mul")
def draws_shared_by_two_records(x, y):
    return x * torch.rand(4).repeat(2)[:, None]


@wrong("add")
def draws_through_a_layer_along_the_batch(x, y):
    return x + (torch.rand(6, 8) @ torch.rand(8, 8)).t()


@wrong("mul")
def draws_minus_the_first(x, y):
    weights = torch.rand(64, 1)
    return x * (weights[: len(x)] - weights[0])


@wrong("mul")
def draws_minus_their_neighbours(x, y):
    weights = torch.rand(len(x) + 1, 1)
    return x * (weights[1:] - weights[:-1])


@wrong("mul")
def draws_and_those_of_the_next_record(x, y):
    weights = torch.rand(len(x) + 1, 1)
    return x * weights[1:] * weights[:-1].exp()


@wrong("mul")
def draws_and_their_largest(x, y):
    weights = torch.rand(64, 1)
    return x * weights[: len(x)] * weights.max()


@wrong("mul")
def running_sums_of_draws(x, y):
    return x * NET(torch.rand(8, 6).cumsum(0))[:, :1]


@wrong("mul")
def draws_of_different_laws(x, y):
    return x * torch.bernoulli(torch.linspace(0, 1, 8))[:, None]


@wrong("mul")
def draws_of_a_seeded_generator(x, y):
    return x * torch.rand(8, 1, generator=torch.Generator().manual_seed(0))


@wrong("cat")
def padded_with_other_rows(x, y):
    return torch.cat([x, torch.zeros(8, 6)])[:8]


@wrong("constant_pad_nd")
def padded_along_the_batch(x, y):
    return F.pad(x, (0, 0, 1, 0))[:8]


@wrong("tril")
def lower_triangle_of_the_batch(x, y):
    return x.tril()


@wrong("diagonal")
def diagonal_of_the_batch(x, y):
    return x + torch.diagonal(x, 0, 0, 1)


@wrong("backward")
def parameter_by_position(x, y):
    return x * nn.Parameter(torch.ones(8, 1))


@wrong("_embedding_bag_forward_only")
def bags_by_offsets(x, y):
    return F.embedding_bag(y, torch.randn(3, 2), torch.tensor([0, 1, 1, 2, 3, 4, 5, 6]))


# State that keeps records.
class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.mean


RUNNING = Running()


@wrong("add_")
def running_mean_in_a_buffer(x, y):
    return RUNNING(x)


@wrong("copy_")
def first_record_in_a_buffer(x, y):
    STATE.mean.copy_(x[0].detach())
    return x - STATE.mean


@wrong("index_put_")
def centroids_in_a_table(x, y):
    STATE.table[y] = x.detach()
    return x - STATE.table[y]


@wrong("add_")
def sum_kept_by_data(x, y):
    STATE.mean.data.add_(x.detach().sum(0))
    return x


@wrong("embedding_renorm_")
def table_with_a_maximal_norm(x, y):
    return F.embedding(y, torch.randn(3, 2), max_norm=0.1)


@wrong("embedding_dense_backward")
def gradients_by_frequency(x, y):
    return nn.Embedding(3, 2, scale_grad_by_freq=True)(y)


@wrong("native_batch_norm")
def instance_norm_with_statistics(x, y):
    return nn.InstanceNorm1d(3, track_running_stats=True)(x.view(8, 3, 2))


# Gradients that mix.
class DividesByBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / (1e-6 + grad.square().mean().sqrt())


@wrong("mean")
def backward_divides_by_all(x, y):
    return ce(NET(DividesByBatchNorm.apply(NET[0].bias + x @ NET[0].weight.T)[:, :6] + x), y)


class ReversesGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.flip(0)


@wrong("flip")
def backward_swaps_records(x, y):
    return ReversesGradients.apply(NET[0](x))


@wrong("mean")
def hook_centres_gradients(x, y):
    z = NET[0](x)
    z.register_hook(lambda grad: grad - grad.mean(0))
    return z


@wrong("linalg_vector_norm")
def hook_normalises_gradients(x, y):
    z = NET[0](x)
    z.register_hook(lambda grad: grad / grad.norm())
    return z


@wrong("sum")
def double_backward_of_the_batch(x, y):
    inputs = x.detach().requires_grad_() * 1
    (grad,) = torch.autograd.grad(NET(inputs).sum(), inputs, create_graph=True)
    return ce(NET(x), y) + grad.square().sum()


# Numbers that Python reads.
@wrong("read")
def mean_as_a_number(x, y):
    return ce(NET(x - float(x.detach().mean())), y)


@wrong("read")
def size_of_a_class(x, y):
    return ce(NET(x), y) * len(x[y == 2])


@wrong("read")
def number_of_hits(x, y):
    return ce(NET(x), y) * torch.where(y == 2)[0].shape[0]


@wrong("read")
def branch_on_the_batch(x, y):
    return ce(NET(x), y) * (2 if bool((x > 0).all()) else 1)


@wrong("read")
def list_of_labels(x, y):
    return ce(NET(x), y) * sum(y.tolist())


@wrong("read")
def maximum_length(x, y):
    return ce(NET(x[:, : 1 + int(y.max()) * 0 + 5]), y)


@wrong("read")
def numpy_statistics(x, y):
    return ce(NET(x), y) * float(x.detach().numpy().std())


@wrong("read")
def unique_classes(x, y):
    return ce(NET(x), y) * len(y.unique())


@wrong("read")
def equality_as_a_branch(x, y):
    return (
        ce(NET(x), y) * (1 if torch.equal(y, y.flip(-1) * 0 + y) else 2)
        if len(y) < 0
        else ce(NET(x), y) * (2 if torch.equal(y, y * 1) else 1)
    )


@wrong("read")
def branch_on_an_exception(x, y):
    weight = 1.0
    try:
        F.one_hot(y, 2)
        torch.linalg.cholesky(x[:, :2, None] * x[:, None, :2] - torch.eye(2))
    except RuntimeError:
        weight = 2.0
    return ce(NET(x), y) * weight


@wrong("read")
def number_of_words(x, y):
    return ce(NET(x), y) / int((y > 0).sum())


@wrong("repeat_interleave")
def repeats_by_label(x, y):
    return ce(NET(x), y) * len(torch.repeat_interleave(x[:, 0], y))


@wrong("read")
def string_of_the_batch(x, y):
    return ce(NET(x), y) * len(str(x.tolist()))


@wrong("read")
def address_of_the_batch(x, y):
    return ce(NET(x), y) * (1 + x.data_ptr() % 2)


@wrong("read")
def scaled_by_the_loss(x, y):
    loss = ce(NET(x), y)
    return loss * math.exp(-loss.mean().item())


# Values of unknown origin.
@wrong("unknown")
def bank_in_a_closure(x, y):
    return ce(NET(x - BANK.mean(0)), y)


@wrong("unknown")
def bank_of_numpy(x, y):
    return ce(NET(x - torch.from_numpy(BANK.numpy().copy()).mean(0)), y)


@wrong("unknown")
def teacher_without_a_module(x, y):
    return ce(NET(x), y) + (x @ BANK.T).square().sum(1)


@wrong("unknown")
def queue_of_earlier_batches(x, y):
    STATE.queue.append(torch.randn(6))
    queue = list(QUEUE)
    return ce(NET(x + queue[0]), y)


QUEUE = [torch.randn(6)]


@torch.jit.script
def _centred(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


@torch.jit.script
def _positives(x: torch.Tensor) -> int:
    return int((x > 0).sum())


@wrong("mean")
def torchscript_that_centres(x, y):
    return ce(NET(_centred(x)), y)


@wrong("read")
def int_out_of_torchscript(x, y):
    return ce(NET(x), y) * _positives(x)


@wrong("mean")
def refusal_that_is_caught(x, y):
    try:
        return x - x.mean(0)
    except Exception:
        return x


@wrong("mean")
def compiled_function_that_centres(x, y):
    return torch.compile(lambda z: z - z.mean(0), backend="eager")(x)


@wrong("mean")
def vectorised_over_columns(x, y):
    return torch.func.vmap(lambda column: column - column.mean(), in_dims=1, out_dims=1)(x)


@wrong("stack")
def records_treated_unlike(x, y):
    return torch.stack([x[i] * 2 if i < 3 else x[i] * 3 for i in range(8)])


@wrong("_to_sparse")
def sparse_product(x, y):
    return x.to_sparse() @ torch.ones(6, 2)


def _in_a_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x - x.mean(0)))
    thread.start()
    thread.join()
    return found[0]


@wrong("nll_loss_forward")
def centred_in_another_thread(x, y):
    return ce(NET(_in_a_thread(x)), y)


@wrong("isin")
def labels_that_the_batch_has(x, y):
    return ce(NET(x), y) * torch.isin(y + 1, y)


@wrong("_ctc_loss")
def targets_by_position(x, y):
    scores = NET(x).log_softmax(1).expand(5, -1, -1)
    targets = torch.tensor([[1, 2], [2, 1]]).repeat(4, 1)
    return F.ctc_loss(scores, targets, torch.full((8,), 5), torch.full((8,), 2), reduction="none")


GRU = nn.GRU(2, 4, batch_first=True)


def packed(x, y, **options):
    """A recurrent layer over sequences of 1 to 3 steps; what was packed, and its last state."""
    rows = pack_padded_sequence(x.view(8, 3, 2), y + 1, batch_first=True, **{"enforce_sorted": False, **options})
    return rows, *GRU(rows)


@wrong("pack_padded_sequence")
def packed_in_the_order_of_lengths(x, y):
    return packed(x, y, enforce_sorted=True)[2][-1]


@wrong("pad_packed_sequence")
def padded_to_the_longest(x, y):
    return pad_packed_sequence(packed(x, y)[1], batch_first=True)[0].mean(1)


@wrong("_pack_padded_sequence")
def weighted_by_rows_of_steps(x, y):
    rows, _, state = packed(x, y)
    return state[-1] * rows.batch_sizes.sum()


@wrong("sort")
def states_in_the_order_of_lengths(x, y):
    rows, _, state = packed(x, y)
    return state[-1][rows.sorted_indices]


@wrong("mean")
def centred_by_packed_rows(x, y):
    rows, _, state = packed(x, y)
    return state[-1] - rows.data.mean()


@wrong("sum")
def divided_by_all_lengths(x, y):
    _, outputs, state = packed(x, y)
    return state[-1] / pad_packed_sequence(outputs, batch_first=True, total_length=3)[1].sum()
