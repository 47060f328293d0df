"""Programs that treat the records apart: none is refused, reads a number, or meets a value of unknown origin."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from tests.verification.catalogue_wrong import NET, ce, packed

RIGHT = {}


def right(program):
    RIGHT[program.__name__] = program
    return program


CONV = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3))
CONV(torch.zeros(1, 1, 2, 3))
EMBED, POSITIONS = nn.Embedding(10, 6), nn.Embedding(6, 6)
ENCODER = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
ATTEND = nn.MultiheadAttention(6, 2, batch_first=True)
LSTM, GRU = nn.LSTM(2, 3, batch_first=True), nn.GRU(2, 3)


@right
def classifier(x, y):
    return ce(NET(x), y)


@right
def convolutional_classifier(x, y):
    return ce(CONV(x.view(-1, 1, 2, 3)), y)


@right
def dropout(x, y):
    return ce(NET(F.dropout(x, 0.5)), y)


@right
def label_smoothing(x, y):
    return F.cross_entropy(NET(x), y, reduction="none", label_smoothing=0.1)


@right
def class_weights(x, y):
    return F.cross_entropy(NET(x), y, weight=torch.tensor([1.0, 2.0, 3.0]), reduction="none")


@right
def ignored_class(x, y):
    return F.cross_entropy(NET(x), y, reduction="none", ignore_index=2)


@right
def squared_error(x, y):
    return F.mse_loss(NET(x)[:, 0], y.float(), reduction="none")


@right
def huber(x, y):
    return F.huber_loss(NET(x)[:, 0], y.float(), reduction="none")


@right
def binary(x, y):
    return F.binary_cross_entropy_with_logits(NET(x)[:, 0], (y > 0).float(), reduction="none")


@right
def one_hot_targets(x, y):
    return (NET(x) - F.one_hot(y, 3)).square().sum(1)


@right
def probability_targets(x, y):
    return F.cross_entropy(NET(x), F.one_hot(y, 3) * 0.9 + 0.1 / 3, reduction="none")


@right
def divergence(x, y):
    return F.kl_div(NET(x).log_softmax(1), F.one_hot(y, 3).float(), reduction="none").sum(1)


@right
def margin(x, y):
    return F.multi_margin_loss(NET(x), y, reduction="none")


@right
def focal(x, y):
    loss = ce(NET(x), y)
    return (1 - torch.exp(-loss)) ** 2 * loss


@right
def penalty_on_weights(x, y):
    return ce(NET(x), y) + 0.1 * NET[0].weight.square().sum()


@right
def own_score(x, y):
    return -NET(x)[torch.arange(len(x)), y]


@right
def own_score_by_gather(x, y):
    return -NET(x).log_softmax(1).gather(1, y[:, None])[:, 0]


@right
def own_word_of_a_sequence(x, y):
    hidden = EMBED(x.abs().long().clamp(max=9))
    return hidden[torch.arange(len(x)), y].sum(1)


@right
def siamese(x, y):
    a, b = NET(torch.cat([x, x.flip(1)])).chunk(2)
    return (a - b).square().sum(1)


@right
def siamese_by_size(x, y):
    z = NET(torch.cat([x, -x]))
    return F.cosine_similarity(z[: len(x)], z[len(x) :])


@right
def triplet_within_a_record(x, y):
    z = NET[2](NET[0](torch.stack([x, x + 1, x - 1])))
    return F.triplet_margin_loss(z[0], z[1], z[2], reduction="none")


@right
def margin_to_public_prototypes(x, y):
    return torch.cdist(NET(x), torch.eye(3)).amin(1)


@right
def standardised_by_itself(x, y):
    return ce(NET((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)), y)


@right
def scaled_by_public_numbers(x, y):
    return ce(NET((x - torch.tensor([0.1] * 6)) / 2.0), y)


@right
def flips_at_random(x, y):
    flipped = torch.where(torch.rand(len(x), 1) < 0.5, x.flip(1), x)
    return ce(NET(flipped), y)


@right
def noise_of_its_own(x, y):
    return ce(NET(x + 0.1 * torch.randn_like(x)), y)


@right
def erased_at_random(x, y):
    return ce(NET(x * torch.bernoulli(torch.full((len(x), 6), 0.9))), y)


@right
def masked_patches(x, y):
    order = torch.rand(len(x), 3).argsort(1)
    kept = x.view(-1, 3, 2).gather(1, order[:, :2, None].expand(-1, -1, 2))
    return kept.square().sum((1, 2))


@right
def stochastic_depth(x, y):
    kept = x.new_empty(len(x), 1).bernoulli_(0.8) / 0.8
    return ce(NET(x * kept), y)


@right
def variational_autoencoder(x, y):
    mean, scale = NET(x)[:, :2], F.softplus(NET(x)[:, 2:])
    z = mean + scale * torch.randn_like(mean)
    kl = 0.5 * (mean.square() + scale.square() - 1 - 2 * scale.log()).sum(1)
    return (z @ torch.ones(2, 6) - x).square().sum(1) + kl


@right
def normal_distribution(x, y):
    law = torch.distributions.Normal(NET(x)[:, 0], F.softplus(NET(x)[:, 1]))
    return -law.log_prob(x[:, 0])


@right
def categorical_distribution(x, y):
    return -torch.distributions.Categorical(logits=NET(x)).log_prob(y)


@right
def diffusion(x, y):
    time = torch.randint(0, 10, (len(x),))
    level = torch.linspace(0.1, 0.9, 10)[time][:, None]
    noise = torch.randn_like(x)
    return ((x * level.sqrt() + noise * (1 - level).sqrt()) - noise).square().sum(1)


@right
def transformer(x, y):
    tokens = x.abs().long().clamp(max=9)
    hidden = ENCODER(EMBED(tokens) + POSITIONS(torch.arange(6)))
    return hidden.mean((1, 2))


@right
def causal_attention(x, y):
    tokens = EMBED(x.abs().long().clamp(max=9))
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    return ATTEND(tokens, tokens, tokens, attn_mask=mask, need_weights=False)[0].sum((1, 2))


@right
def padded_attention(x, y):
    tokens = x.abs().long().clamp(max=9)
    hidden = EMBED(tokens)
    return ATTEND(hidden, hidden, hidden, key_padding_mask=tokens == 9)[0].sum((1, 2))


@right
def scaled_attention(x, y):
    q = x.view(-1, 1, 3, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).sum((1, 2, 3))


@right
def mean_of_unmasked_words(x, y):
    mask = (x > 0).float()
    return (x * mask).sum(1) / mask.sum(1).clamp(min=1)


@right
def words_with_a_mask(x, y):
    loss = (x - 1).square()
    return torch.where(x > 0, loss, 0).sum(1)


@right
def written_at_a_mask(x, y):
    masked = x.clone()
    masked[x < 0] = 0
    return masked.sum(1)


@right
def lstm(x, y):
    return LSTM(x.view(-1, 3, 2))[0][:, -1].sum(1)


@right
def gru_time_first(x, y):
    return GRU(x.view(-1, 3, 2).transpose(0, 1))[1][0].sum(1)


@right
def last_word_of_its_length(x, y):
    out = LSTM(x.view(-1, 3, 2))[0]
    return out.gather(1, y[:, None, None].expand(-1, 1, 3))[:, 0].sum(1)


@right
def loop_over_time(x, y):
    hidden = torch.zeros(len(x), 6)
    for step in range(6):
        hidden = torch.tanh(hidden + x[:, step : step + 1])
    return hidden.sum(1)


@right
def loop_over_records(x, y):
    return torch.stack([(row - row.mean()).square().sum() for row in x])


@right
def vectorised_function(x, y):
    return torch.func.vmap(lambda row: (row - row.mean()).square().sum())(x)


@right
def written_slices(x, y):
    out = torch.zeros(len(x), 6)
    out[:, :3] = x[:, 3:]
    out[:, 3:] = x[:, :3]
    return out.sum(1)


@right
def written_into_empty(x, y):
    out = torch.empty(len(x), 2)
    out[:, 0] = x[:, 0]
    out[:, 1] = y
    return out.sum(1)


@right
def segmentation(x, y):
    scores = F.conv2d(x.view(-1, 1, 2, 3), torch.ones(3, 1, 1, 1))
    return F.cross_entropy(scores, (x.view(-1, 2, 3) > 0).long(), reduction="none").mean((1, 2))


@right
def u_net(x, y):
    image = x.view(-1, 1, 2, 3)
    down = F.max_pool2d(image, 2, ceil_mode=True)
    up = F.interpolate(down, size=(2, 3), mode="bilinear", align_corners=False)
    return torch.cat([image, up], 1).square().sum((1, 2, 3))


@right
def instance_norm(x, y):
    return F.instance_norm(x.view(-1, 2, 3)).square().sum((1, 2))


@right
def windows_of_an_image(x, y):
    return F.unfold(x.view(-1, 1, 2, 3), 2).square().sum((1, 2))


@right
def shifted_windows(x, y):
    rolled = torch.roll(x.view(-1, 2, 3), (1, 1), (1, 2))
    return (rolled - x.view(-1, 2, 3)).square().sum((1, 2))


@right
def spatial_transformer(x, y):
    image = x.view(-1, 1, 2, 3)
    grid = torch.stack([image[:, 0], -image[:, 0]], -1).tanh()
    return F.grid_sample(image, grid, align_corners=False).sum((1, 2, 3))


@right
def mixture_of_experts(x, y):
    gates = torch.softmax(x[:, :3], 1)
    experts = torch.einsum("bi,eio->beo", x, torch.ones(3, 6, 2))
    return (gates[..., None] * experts).sum((1, 2))


@right
def sparse_gates(x, y):
    values, places = x.topk(2, 1)
    return torch.zeros_like(x).scatter(1, places, values.softmax(1)).mul(x).sum(1)


@right
def nearest_code(x, y):
    book = torch.eye(6)
    code = torch.cdist(x, book).argmin(1)
    return (x - book[code]).square().sum(1)


@right
def spectrum(x, y):
    return torch.fft.rfft(x, dim=1).abs().sum(1)


@right
def covariance_of_a_record(x, y):
    rows = x.view(-1, 3, 2)
    return torch.linalg.det(rows.transpose(1, 2) @ rows + torch.eye(2))


@right
def bilinear_form(x, y):
    return torch.einsum("bi,ij,bj->b", x, torch.ones(6, 6), x)


@right
def gradient_penalty(x, y):
    inputs = x.detach().clone().requires_grad_()
    (grad,) = torch.autograd.grad(NET(inputs).square().sum(1), inputs, torch.ones(len(x)), create_graph=True)
    return grad.square().sum(1)


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1, 1)


@right
def straight_through(x, y):
    return ce(NET(StraightThrough.apply(x)), y)


@right
def clipped_cotangents(x, y):
    z = NET[0](x)
    z.register_hook(lambda grad: grad / grad.norm(dim=1, keepdim=True).clamp(min=1))
    return z.sum(1)


@right
def checkpointed(x, y):
    return ce(torch.utils.checkpoint.checkpoint(NET, x, use_reentrant=False), y)


@right
def statistics_thrown_away(x, y):
    x.mean(0)
    return ce(NET(x), y)


@right
def time_and_records_flat(x, y):
    tokens = x.abs().long().clamp(max=9)
    return F.cross_entropy(EMBED(tokens).view(-1, 6), (tokens % 6).view(-1), reduction="none").view(-1, 6).mean(1)


@right
def repeated_views(x, y):
    return NET(x.repeat(3, 1)).view(3, -1, 3).mean((0, 2))


@right
def interleaved_views(x, y):
    return NET(x.repeat_interleave(3, 0)).view(-1, 3, 3).mean((1, 2))


@right
def bucketised(x, y):
    return torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])).float().sum(1)


@right
def double_precision(x, y):
    return ce(NET(x.double().float()), y)


@right
def half_precision(x, y):
    with torch.autocast("cpu", torch.bfloat16):
        return ce(NET(x), y)


@right
def records_by_index(x, y):
    return torch.stack([(x[i] * 2).sum() for i in range(len(x))])


@right
def records_of_a_layer_by_index(x, y):
    z = NET(x)
    return torch.stack([z[i].square().sum() for i in range(len(x))])


@right
def last_state_of_packed_sequences(x, y):
    return packed(x, y)[2][-1]


@right
def mean_over_packed_sequences(x, y):
    outputs, lengths = pad_packed_sequence(packed(x, y)[1], batch_first=True, total_length=3)
    return outputs.sum(1) / lengths[:, None]


@right
def packed_rows_one_by_one(x, y):
    rows = packed(x, y)[1]
    rows = PackedSequence(torch.relu(rows.data), *rows[1:])
    return pad_packed_sequence(rows, batch_first=True, total_length=3)[0][torch.arange(len(x)), y]


@right
def all_records_by_a_list(x, y):
    return x.index_select(0, torch.arange(len(x)))


TIME = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6))
DENOISE, LABELS, STEPS = nn.Linear(6, 6), nn.Embedding(4, 6), nn.Embedding(10, 6)


def sinusoidal(time):
    angles = time.float()[:, None] * torch.exp(-torch.arange(3) / 3)
    return torch.cat([angles.sin(), angles.cos()], -1)


def written_by_columns(time):
    table = torch.zeros(len(time), 6)
    table[:, 0::2] = torch.sin(time[:, None] * torch.arange(3))
    table[:, 1::2] = torch.cos(time[:, None] * torch.arange(3))
    return table


@right
def denoising_with_a_time_embedding(x, y):
    time = torch.randint(0, 10, (len(x),))
    kept, noise = torch.linspace(0.99, 0.01, 10)[time][:, None], torch.randn_like(x)
    noised = kept.sqrt() * x + (1 - kept).sqrt() * noise
    return (DENOISE(noised + TIME(sinusoidal(time))) - noise).square().mean(1)


@right
def denoising_with_gathered_schedules_and_embedded_steps(x, y):
    time = torch.randint(0, 10, (len(x),))
    kept = torch.linspace(0.99, 0.01, 10).gather(-1, time).reshape(len(x), 1)
    steps = torch.cat([STEPS(time), F.one_hot(time % 6, 6).float()], 1).view(len(x), 2, 6).mean(1)
    return (DENOISE(kept * x + F.layer_norm(TIME(steps), (6,)))).square().sum(1)


@right
def flow_matching(x, y):
    start, time = torch.randn_like(x), torch.rand(len(x))
    at = (1 - time)[:, None] * start + time.view(-1, 1) * x
    scale, shift = TIME(written_by_columns(time)).chunk(2, dim=1)
    return (DENOISE(at)[:, :3] * (1 + scale) + shift - (x - start)[:, 3:]).square().mean(1)


@right
def score_matching(x, y):
    time = torch.rand(len(x)) * (1 - 1e-5) + 1e-5
    std, noise = ((25 ** (2 * time) - 1) / 6).sqrt(), torch.randn_like(x)
    features = torch.outer(time, torch.linspace(1, 9, 3))
    features = torch.cat([features.sin(), features.cos()], -1)
    score = DENOISE(x + noise * std[:, None] + DENOISE(features)) / std[:, None]
    return (score * std[:, None] + noise).square().sum(1)


@right
def guidance_without_a_classifier(x, y):
    label = torch.where(torch.rand(len(x)) < 0.1, torch.full_like(y, 3), y)
    steps = torch.multinomial(torch.ones(10), len(x), replacement=True)
    return (DENOISE(x + LABELS(label) + F.dropout(STEPS(steps), 0.1))).square().sum(1)


@right
def two_rows_of_draws(x, y):
    early, late = torch.rand(2, len(x)).sort(0).values
    return DENOISE(x * (late - early)[:, None] + TIME(sinusoidal(late - early))).square().sum(1)


@right
def draws_in_several_shapes(x, y):
    noise, steps = torch.randn_like(x), torch.randn(3, len(x), 6)
    sides = (noise[:, :3] * noise[:, 3:]).sum(1) + noise.view(-1, 2, 3).flatten(1).sum(1)
    return DENOISE(x + noise + steps[0] + steps[1:].sum(0)).square().sum(1) * sides * torch.rand(())


@right
def gaussian_likelihood(x, y):
    return F.gaussian_nll_loss(NET(x)[:, 0], y.float(), F.softplus(NET(x)[:, 1]) + 0.1, reduction="none")


@right
def a_layer_on_each_record(x, y):
    return ce(torch.stack([NET(row) for row in x]), y)


@right
def a_convolution_on_each_record(x, y):
    return torch.cat([CONV[0](row.view(1, 1, 2, 3)) for row in x]).sum((1, 2, 3))
