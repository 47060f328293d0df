"""Training loops around `make_private`: wrong ones, none of which may keep `proven`, and correct ones.

`p` is what `make_private` returned for a small network on the records `x, y`. A wrong loop lets one record move what
is released by more than the clipping norm, or steers the run by private values.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from tests.gradients.modules import WRONG as MODULES
from tests.gradients.modules import Net
from tests.training.cases import cross_entropy as ce
from tests.training.cases import stack

LR = 0.1


def records(count=24):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 6, generator=generator)
    return x, torch.arange(count) % 3


def first(p):
    return next(iter(p.loader))


def frozen():
    model = Net()
    model.a.requires_grad_(False)
    return model


def plain_loader(x, y):
    return DataLoader(TensorDataset(x, y), batch_size=len(x) // 2)


def collated(collate):
    return lambda x, y: DataLoader(TensorDataset(x, y), batch_size=len(x) // 2, collate_fn=collate)


def data_set(kind):
    return lambda x, y: DataLoader(kind(x, y), batch_size=len(x) // 2)


def mixed(rows):
    x, y = stack(rows)
    return 0.5 * x + 0.5 * x[:1], y


def mixed_randomly(rows):
    x, y = stack(rows)
    return 0.5 * x + 0.5 * x[torch.randperm(len(x))], y


class Records(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class MixedWithFirst(Records):
    def __getitem__(self, i):
        return 0.5 * self.x[i] + 0.5 * self.x[0], self.y[i]


class MixedWithAnother(Records):
    def __getitem__(self, i):
        return 0.5 * self.x[i] + 0.5 * self.x[(i * 7 + 3) % len(self.x)], self.y[i]


class Standardised(Records):
    def __getitem__(self, i):
        return (self.x[i] - self.x.mean(0)) / self.x.std(0), self.y[i]


def weighted(x, y):
    return DataLoader(TensorDataset(x, y), batch_size=8, sampler=WeightedRandomSampler(torch.ones(len(x)), len(x)))


def correct(p, x, y):
    for a, b in p.loader:
        ce(p.model(a), b).backward()
        p.optimizer.step()
        break


def two_backwards(p, x, y):
    a, b = first(p)
    ce(p.model(a), b).backward()
    ce(p.model(a), b).backward()
    p.optimizer.step()


def two_backwards_retain(p, x, y):
    a, b = first(p)
    o = p.model(a)
    ce(o, b).backward(retain_graph=True)
    o.square().sum(1).backward()
    p.optimizer.step()


def accumulate_4(p, x, y):
    for i, (a, b) in enumerate(p.loader):
        ce(p.model(a), b).backward()
        if i % 4 == 3:
            p.optimizer.step()


def step_twice(p, x, y):
    a, b = first(p)
    ce(p.model(a), b).backward()
    p.optimizer.step()
    p.optimizer.step()


def user_grad_left_before(p, x, y):
    F.cross_entropy(p.model.module(x), y).backward()
    correct(p, x, y)


def regulariser_other_records(p, x, y):
    a, b = first(p)
    o = p.model(a)
    with torch.no_grad():
        ref = p.model.module(x)
    (ce(o, b) + ((o - ref.mean(0)) ** 2).sum(1)).backward()
    p.optimizer.step()


def contrastive(p, x, y):
    a, _ = first(p)
    z = F.normalize(p.model(a), dim=1)
    s = z @ z.T / 0.1
    F.cross_entropy(s, torch.arange(len(s)), reduction="none").backward()
    p.optimizer.step()


def contrastive_detached_keys(p, x, y):
    a, _ = first(p)
    z = F.normalize(p.model(a), dim=1)
    with torch.no_grad():
        k = F.normalize(p.model.module(a), dim=1)
    s = z @ k.T / 0.1
    F.cross_entropy(s, torch.arange(len(s)), reduction="none").backward()
    p.optimizer.step()


def contrastive_detached_private(p, x, y):
    a, _ = first(p)
    z = F.normalize(p.model(a), dim=1)
    with torch.no_grad():
        k = F.normalize(p.model(a), dim=1)
    s = z @ k.T / 0.1
    F.cross_entropy(s, torch.arange(len(s)), reduction="none").backward()
    p.optimizer.step()


def ema_weights(p, x, y):
    e = torch.optim.swa_utils.AveragedModel(p.model.module)
    correct(p, x, y)
    e.update_parameters(p.model.module)


def mixup(p, x, y):
    a, b = first(p)
    g = torch.Generator().manual_seed(3)
    perm = torch.randperm(len(a), generator=g)
    m = 0.5 * a + 0.5 * a[perm]
    o = p.model(m)
    (0.5 * ce(o, b) + 0.5 * ce(o, b[perm])).backward()
    p.optimizer.step()


def mixup_neighbour(p, x, y):
    a, b = first(p)
    m = 0.5 * a + 0.5 * a[:1]
    o = p.model(m)
    (0.5 * ce(o, b) + 0.5 * ce(o, b[:1].expand(len(b)))).backward()
    p.optimizer.step()


def cutmix(p, x, y):
    a, b = first(p)
    m = a.clone()
    m[:, :3] = a[:1, :3]
    ce(p.model(m), b).backward()
    p.optimizer.step()


def class_weight_of_batch(p, x, y):
    a, b = first(p)
    w = len(b) / (3.0 * torch.bincount(b, minlength=3).clamp(min=1))
    (ce(p.model(a), b) * w[b]).backward()
    p.optimizer.step()


def batch_standardised_inputs(p, x, y):
    a, b = first(p)
    a = (a - a.mean(0)) / (a.std(0) + 1e-05)
    ce(p.model(a), b).backward()
    p.optimizer.step()


def loss_weighted_by_batch_loss(p, x, y):
    a, b = first(p)
    losses = ce(p.model(a), b)
    (losses * (losses.detach() / losses.detach().mean())).backward()
    p.optimizer.step()


def loss_weighted_by_float(p, x, y):
    a, b = first(p)
    losses = ce(p.model(a), b)
    (losses / float(losses.mean())).backward()
    p.optimizer.step()


def focal_top_half(p, x, y):
    a, b = first(p)
    losses = ce(p.model(a), b)
    k = losses.detach() > losses.detach().median()
    (losses * k).backward()
    p.optimizer.step()


def hard_mining_numpy(p, x, y):
    a, b = first(p)
    losses = ce(p.model(a), b)
    t = float(torch.quantile(losses.detach(), 0.5))
    (losses * (losses.detach() > t).float()).backward()
    p.optimizer.step()


def compiled_model(p, x, y):
    m = torch.compile(p.model, backend="eager")
    a, b = first(p)
    ce(m(a), b).backward()
    p.optimizer.step()


def eval_mode(p, x, y):
    p.model.eval()
    correct(p, x, y)


def unfreeze_after(p, x, y):
    for q in p.model.module.a.parameters():
        q.requires_grad_(True)
    correct(p, x, y)


def freeze_after(p, x, y):
    for q in p.model.module.a.parameters():
        q.requires_grad_(False)
    correct(p, x, y)


def param_added_after(p, x, y):
    p.model.module.extra = nn.Parameter(torch.zeros(3))
    p.optimizer.original.add_param_group({"params": [p.model.module.extra]})
    a, b = first(p)
    ce(p.model(a) + p.model.module.extra, b).backward()
    p.optimizer.step()


def param_used_in_forward_added_after(p, x, y):
    m = p.model.module
    m.extra = nn.Parameter(torch.zeros(3))
    p.optimizer.original.add_param_group({"params": [m.extra]})
    f = type(m).forward
    m.forward = lambda v: f(m, v) + m.extra
    a, b = first(p)
    ce(p.model(a), b).backward()
    p.optimizer.step()


def lr_schedule(p, x, y):
    s = torch.optim.lr_scheduler.StepLR(p.optimizer.original, 1, 0.5)
    correct(p, x, y)
    s.step()


def lr_from_batch_loss(p, x, y):
    a, b = first(p)
    losses = ce(p.model(a), b)
    p.optimizer.param_groups[0]["lr"] = float(losses.mean())
    losses.backward()
    p.optimizer.step()


def clip_again_after(p, x, y):
    a, b = first(p)
    ce(p.model(a), b).backward()
    nn.utils.clip_grad_norm_(p.model.parameters(), 1.0)
    p.optimizer.step()


def skip_batch_of_high_loss(p, x, y):
    n = 0
    for a, b in p.loader:
        losses = ce(p.model(a), b)
        n += 1
        if float(losses.mean()) > 0.0:
            if n > 3:
                break
            continue
        losses.backward()
        p.optimizer.step()


def original_loader(p, x, y):
    for a, b in DataLoader(TensorDataset(x, y), batch_size=4):
        ce(p.model(a), b).backward()
        p.optimizer.step()
        break


def original_loader_same_size(p, x, y):
    a, _ = first(p)
    ce(p.model(x[:1].expand(len(a), -1)), y[:1].expand(len(a))).backward()
    p.optimizer.step()


def retry_after_exception(p, x, y):
    for t in range(2):
        try:
            a, b = first(p)
            losses = ce(p.model(a), b)
            losses.backward()
            if t == 0:
                raise RuntimeError("oom")
            p.optimizer.step()
        except RuntimeError as e:
            if "oom" not in str(e):
                raise


def deepcopy_then_plain_training(p, x, y):
    m = copy.deepcopy(p.model)
    o = torch.optim.SGD(m.parameters(), lr=LR)
    F.cross_entropy(m(x), y, reduction="sum").backward()
    o.step()
    p.model.load_state_dict(m.state_dict())


def bypass_original_optimizer(p, x, y):
    F.cross_entropy(p.model.module(x), y, reduction="sum").backward()
    p.optimizer.original.step()


def mean_loss(p, x, y):
    a, b = first(p)
    F.cross_entropy(p.model(a), b).backward()
    p.optimizer.step()


def sum_loss(p, x, y):
    a, b = first(p)
    F.cross_entropy(p.model(a), b, reduction="sum").backward()
    p.optimizer.step()


def l2_penalty_in_loss(p, x, y):
    a, b = first(p)
    (ce(p.model(a), b) + 0.1 * sum(q.square().sum() for q in p.model.parameters())).backward()
    p.optimizer.step()


def teacher_fit_on_private_batch(p, x, y):
    a, b = first(p)
    d = torch.cdist(a, a)
    t = F.one_hot(b[d.topk(3, largest=False).indices], 3).float().mean(1)
    (-(F.log_softmax(p.model(a), 1) * t).sum(1)).backward()
    p.optimizer.step()


def inplace_change_of_batch(p, x, y):
    a, b = first(p)
    o = p.model(a)
    a.mul_(2.0)
    ce(o, b).backward()
    p.optimizer.step()


def lbfgs_closure(p, x, y):
    a, b = first(p)

    def c():
        losses = ce(p.model(a), b)
        losses.backward()
        return losses

    p.optimizer.step(c)


def noise_turned_down(p, x, y):
    p.optimizer.noise_multiplier = 0.01
    correct(p, x, y)


def gradscaler(p, x, y):
    s = torch.amp.GradScaler("cpu")
    a, b = first(p)
    s.scale(ce(p.model(a), b)).backward()
    s.step(p.optimizer)
    s.update()


def empty_batch_continue(p, x, y):
    for a, b in p.loader:
        if len(a) == 0:
            continue
        ce(p.model(a), b).backward()
        p.optimizer.step()


def repeated(x, y):
    return plain_loader(torch.cat([x] + [x[:1]] * 5), torch.cat([y] + [y[:1]] * 5))


def singles(x, y):
    return DataLoader(TensorDataset(x, y), batch_size=1)


class Case:
    """A loop, and the model and loader that it needs."""

    def __init__(self, loop, model=Net, loader=plain_loader):
        self.loop, self.model, self.loader = loop, model, loader


WRONG = {
    "two_backwards": Case(two_backwards),
    "two_backwards_retain": Case(two_backwards_retain),
    "accumulate_4": Case(accumulate_4),
    "step_twice": Case(step_twice),
    "user_grad_left_before": Case(user_grad_left_before),
    "regulariser_other_records": Case(regulariser_other_records),
    "contrastive": Case(contrastive),
    "contrastive_detached_keys": Case(contrastive_detached_keys),
    "contrastive_detached_private": Case(contrastive_detached_private),
    "mixup": Case(mixup),
    "mixup_neighbour": Case(mixup_neighbour),
    "cutmix": Case(cutmix),
    "class_weight_of_batch": Case(class_weight_of_batch),
    "batch_standardised_inputs": Case(batch_standardised_inputs),
    "loss_weighted_by_batch_loss": Case(loss_weighted_by_batch_loss),
    "loss_weighted_by_float": Case(loss_weighted_by_float),
    "focal_top_half": Case(focal_top_half),
    "hard_mining_numpy": Case(hard_mining_numpy),
    "eval_mode": Case(eval_mode),
    "unfreeze_after": Case(unfreeze_after, model=frozen),
    "param_added_after": Case(param_added_after),
    "param_used_in_forward_added_after": Case(param_used_in_forward_added_after),
    "lr_from_batch_loss": Case(lr_from_batch_loss),
    "skip_batch_of_high_loss": Case(skip_batch_of_high_loss),
    "original_loader": Case(original_loader),
    "original_loader_same_size": Case(original_loader_same_size),
    "retry_after_exception": Case(retry_after_exception),
    "deepcopy_then_plain_training": Case(deepcopy_then_plain_training),
    "bypass_original_optimizer": Case(bypass_original_optimizer),
    "mean_loss": Case(mean_loss),
    "sum_loss": Case(sum_loss),
    "l2_penalty_in_loss": Case(l2_penalty_in_loss),
    "buffer_running_mean": Case(correct, model=MODULES["running mean"]),
    "python_state_of_last_batch": Case(correct, model=MODULES["last batch"]),
    "teacher_fit_on_private_batch": Case(teacher_fit_on_private_batch),
    "inplace_change_of_batch": Case(inplace_change_of_batch),
    "lbfgs_closure": Case(lbfgs_closure),
    "noise_turned_down": Case(noise_turned_down),
    "gradscaler": Case(gradscaler),
    "own_sampler": Case(correct, loader=weighted),
    "collate_mixes": Case(correct, loader=collated(mixed)),
    "collate_mixes_randomly": Case(correct, loader=collated(mixed_randomly)),
    "dataset_mixes_records": Case(correct, loader=data_set(MixedWithFirst)),
    "dataset_standardised_by_private_mean": Case(correct, loader=data_set(Standardised)),
    "person_repeated_six_times": Case(correct, loader=repeated),
    "empty_batch_continue": Case(empty_batch_continue, loader=singles),
    "dataset_mixes_with_another": Case(correct, loader=data_set(MixedWithAnother)),
}


class Denoiser(Net):
    """A model of a noised record, the time of its noise, and a label that is left out at times."""

    def __init__(self):
        super().__init__()
        self.time, self.labels = nn.Linear(2, 6), nn.Embedding(4, 6)

    def forward(self, x, time, labels):
        angles = torch.stack([time.sin(), time.cos()], 1)
        return super().forward(x + self.time(angles) + self.labels(labels))


def diffusion(p, x, y):
    schedule = p.public(torch.linspace(0.99, 0.01, 10), "schedule")
    for a, b in p.loader:
        time = torch.randint(0, 10, (len(a),))
        kept, noise = schedule[time][:, None], torch.randn_like(a)
        labels = torch.where(torch.rand(len(b)) < 0.1, torch.full_like(b, 3), b)
        found = p.model(kept.sqrt() * a + (1 - kept).sqrt() * noise, time, labels)
        F.mse_loss(found, noise[:, :3], reduction="none").mean(1).backward()
        p.optimizer.step()


def draws_of_a_loss(p, x, y):
    for a, b in p.loader:
        outputs = p.model(a)
        ce(outputs + 0.1 * torch.randn_like(outputs), b).backward()
        p.optimizer.step()


CORRECT = {
    "draws_of_a_loss": Case(draws_of_a_loss),
    "diffusion": Case(diffusion, model=Denoiser),
    "plain": Case(correct),
    "zero_grad_forgotten": Case(correct),
    "ema_weights": Case(ema_weights),
    "compiled_model": Case(compiled_model),
    "frozen_before": Case(correct, model=frozen),
    "freeze_after": Case(freeze_after),
    "lr_schedule": Case(lr_schedule),
    "clip_again_after": Case(clip_again_after),
}
