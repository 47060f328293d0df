"""Modules that keep or mix records, and modules that do not, for the tests of every door to private training."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


class Buffers(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("m", torch.zeros(6))
        self.register_buffer("v", torch.ones(6))


def wrong(before, base=Net, **attributes):
    """A module whose forward pass is `before(self, x)`."""

    class Wrong(base):
        def __init__(self):
            super().__init__()
            for name, value in attributes.items():
                setattr(self, name, value() if callable(value) else value)

        def forward(self, x):
            return before(self, x)

    return Wrong


def _run_mean(m, x):
    m.m = 0.5 * m.m + 0.5 * x.detach().mean(0)
    return Net.forward(m, x - m.m)


def _memory(m, x):
    out = Net.forward(m, x)
    if m.last is not None:
        out = out + m.last.mean()
    m.last = x.detach()
    return out


def _data_in_place(m, x):
    m.m.data.mul_(0.9).add_(0.1 * x.detach().mean(0))
    return Net.forward(m, x - m.m)


def _data_assigned(m, x):
    m.m.data = 0.9 * m.m.data + 0.1 * x.detach().mean(0)
    return Net.forward(m, x - m.m)


def _param_data(m, x):
    m.a.bias.data = m.a.bias.data * 0 + torch.full((8,), float(x.detach().mean()))
    return Net.forward(m, x)


def _param_data_in_place(m, x):
    m.a.bias.data.add_(float(x.detach().mean()))
    return Net.forward(m, x)


class VQ(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("code", torch.randn(4, 8))

    def forward(self, x):
        h = torch.tanh(self.a(x))
        i = torch.cdist(h, self.code).argmin(1)
        q = self.code[i]
        with torch.no_grad():
            one = F.one_hot(i, 4).to(h)
            self.code.data = 0.9 * self.code.data + 0.1 * (one.T @ h.detach() / one.sum(0).clamp(min=1)[:, None])
        return self.b(h + (q - h).detach())


def _python_float(m, x):
    m.k = 0.9 * m.k + 0.1 * float(x.detach().abs().mean())
    return Net.forward(m, x / (1 + m.k))


def _python_tensor(m, x):
    m.k = 0.9 * m.k + 0.1 * x.detach().mean(0)
    return Net.forward(m, x - m.k)


def _list(m, x):
    m.seen.append(x.detach().mean(0))
    return Net.forward(m, x - m.seen[0])


def _renorm(m, x):
    mean, var = x.mean(0), x.var(0, unbiased=False) + 1e-3
    m.m = m.m + 0.1 * (mean.detach() - m.m)
    return Net.forward(m, (x - mean) / var.sqrt())


_SEEN = {}


def _global(m, x):
    previous = _SEEN.get("mean", torch.zeros(6))
    _SEEN["mean"] = x.detach().mean(0)
    return Net.forward(m, x - previous)


class _Mixing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + gradient.roll(1, 0)


def _attention(m, x):
    h = torch.tanh(m.a(x)) + 0.01 * torch.randn(len(x), 8)
    return m.b(torch.softmax(h @ h.T, 1) @ h)


def _shuffled(m, x):
    h = torch.tanh(m.a(x))
    return m.b(0.5 * h + 0.5 * h[torch.randperm(len(h))])


def _capacity(m, x, shift=0.0):
    """A mixture of experts with a capacity: who comes first gets the expert."""
    h = m.a(x)
    kept = (h[:, 0] > shift).cumsum(0) <= 2
    return m.b(torch.tanh(h) * kept[:, None])


def _capacity_for_the_last(m, x):
    h = m.a(x)
    kept = (h[:, 0] > 0).flip(0).cumsum(0).flip(0) <= 2
    return m.b(torch.tanh(h) * kept[:, None])


def _capacity_by_score(m, x):
    h = m.a(x)
    rank = h[:, 0].argsort(descending=True).argsort()
    return m.b(torch.tanh(h) * (rank < 4)[:, None])


CAPACITIES = {
    "expert capacity": wrong(_capacity),
    "capacity of an expert that few ask for": wrong(lambda m, x: _capacity(m, x, 1.5)),
    "capacity of an expert that most ask for": wrong(lambda m, x: _capacity(m, x, -1.5)),
    "capacity for the last": wrong(_capacity_for_the_last),
    "capacity by score": wrong(_capacity_by_score),
}


def _kept_mean(m, x):
    m.first = x.detach().mean(0) if m.first is None else m.first
    return Net.forward(m, x - m.first)


def _first_mean(m, x):
    if not m.box():
        m.box().append(x.detach().mean(0))
    return Net.forward(m, x - m.box()[0])


def _first_scale(m, x):
    if not m.box():
        m.box().append(float(x.std()))
    return Net.forward(m, x / m.box()[0])


class ByHook(Net):
    """Centres by the mean of its first batch, in a hook that a closure serves."""

    def __init__(self):
        super().__init__()
        box = []

        def centred(module, given):
            if not box:
                box.append(given[0].detach().mean(0))
            return (given[0] - box[0],)

        self.a.register_forward_pre_hook(centred)


class Boxed(Net):
    """A list outside of the module's state, as a global or a closure is."""

    def __init__(self):
        super().__init__()
        found = []
        self.box = lambda: found


WRONG = {
    "running mean": wrong(_run_mean, Buffers),
    "last batch": wrong(_memory, last=None),
    "buffer written through data": wrong(_data_in_place, Buffers),
    "buffer replaced through data": wrong(_data_assigned, Buffers),
    "parameter replaced through data": wrong(_param_data),
    "parameter written through data": wrong(_param_data_in_place),
    "codebook": VQ,
    "Python float": wrong(_python_float, k=0.0),
    "plain tensor": wrong(_python_tensor, k=lambda: torch.zeros(6)),
    "list": wrong(_list, seen=list),
    "batch renorm": wrong(_renorm, Buffers),
    "global": wrong(_global),
    "mean of the batch": wrong(lambda m, x: Net.forward(m, x - x.mean(0))),
    "mean of the batch and noise": wrong(lambda m, x: Net.forward(m, x - x.mean(0) + 0.01 * torch.randn_like(x))),
    "attention with noise": wrong(_attention),
    "shuffled mixing": wrong(_shuffled),
    "noise scaled by the batch": wrong(lambda m, x: Net.forward(m, x + torch.randn_like(x) * x.std(0, unbiased=False))),
    "largest of the batch": wrong(lambda m, x: Net.forward(m, x / x.abs().amax())),
    "mixing in backward alone": wrong(lambda m, x: m.b(_Mixing.apply(torch.tanh(m.a(x))))),
    **CAPACITIES,
    "mean of the first batch in an attribute": wrong(_kept_mean, first=None),
    "mean of the first batch in a closure": wrong(_first_mean, Boxed),
    "number of the first batch in a closure": wrong(_first_scale, Boxed),
    "mean of the first batch in a hook": ByHook,
    "median": wrong(lambda m, x: Net.forward(m, x - x.median(0).values)),
}


class Calls(Net):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) / (1 + 1e-4 * self.calls)


class Counter(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Noise(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return super().forward(self.drop(x) + 0.01 * torch.randn_like(x))


class Routed(Net):
    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(torch.where(h[:, :1] > 0, h, -0.5 * h))


class Cached(Net):
    """A table made at the first call, as rotary embeddings are."""

    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(0, 1, 6).cos()
        return super().forward(x * self.table)


class Logged(Net):
    """A hook keeps outputs for the user to look at; no later call uses them."""

    def __init__(self):
        super().__init__()
        self.a.register_forward_hook(lambda module, given, output: LOGGED.append(output.detach()))


class Positions(Net):
    """A table that depends on shapes alone, in a cache that all models share."""

    def forward(self, x):
        if x.shape[1:] not in TABLES:
            TABLES[x.shape[1:]] = torch.arange(x.shape[1]).sin()
        return super().forward(x + TABLES[x.shape[1:]])


class RecordByRecord(Net):
    def forward(self, x):
        return torch.cat([super(RecordByRecord, self).forward(row[None]) for row in x])


class Diffusion(Net):
    """Denoises at a drawn time, whose embedding passes two layers before it meets the record."""

    def __init__(self):
        super().__init__()
        self.time, self.steps = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6)), nn.Embedding(10, 3)
        self.register_buffer("kept", torch.linspace(0.99, 0.01, 10))

    def forward(self, x):
        time = torch.randint(0, 10, (len(x),))
        kept, angles = self.kept[time][:, None], time[:, None] * torch.ones(3)
        noised = kept.sqrt() * x + (1 - kept).sqrt() * torch.randn_like(x)
        embedded = torch.cat([angles.sin(), angles.cos()], 1)
        return super().forward(noised + self.time(embedded)) + self.steps(time)


LOGGED, TABLES = [], {}
GOOD = {
    "plain": Net,
    "calls with annealing": Calls,
    "counter buffer": Counter,
    "noise and dropout": Noise,
    "routing by record": Routed,
    "table made at the first call": Cached,
    "outputs logged by a hook": Logged,
    "table in a shared cache": Positions,
    "layers on one record after the other": RecordByRecord,
    "diffusion": Diffusion,
    "group norm": lambda: nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3)),
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.Linear(8, 3)),
    "log of negative numbers": lambda: nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 3)),
}
