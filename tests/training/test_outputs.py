"""Models that take and return containers, run as they are: their clipped sums against a loop in float64."""

import copy
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, default_collate

from tacit.errors import MixesRecords, TrainingMisuse, UnsupportedModel
from tacit.noise import SeededStream
from tacit.training import make_private
from tests.training.cases import blobs, cross_entropy, small_model

RECORDS, BATCH, CLIP = 40, 10, 0.3
Both = namedtuple("Both", ["logits", "hidden"])


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    hidden: tuple = ()
    cache: object = None


class Returning(nn.Module):
    """Two layers, and whatever `form` makes of what they return."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.form = nn.Linear(4, 6), nn.Linear(6, 2), form

    def forward(self, x, **options):
        hidden = self.first(x).tanh() * options.get("scale", 1.0)
        return self.form(self.last(hidden), hidden)


FORMS = {
    "dict": (lambda logits, hidden: {"logits": logits, "hidden": hidden, "n": 3}, lambda o: (o["logits"], o["hidden"])),
    "tuple": (lambda logits, hidden: (logits, hidden), lambda o: o),
    "namedtuple": (Both, lambda o: (o.logits, o.hidden)),
    "dataclass": (
        lambda logits, hidden: Output(logits, logits.mean(), (hidden,), object()),
        lambda o: (o.logits, o.hidden[0]),
    ),
    "nested": (
        lambda logits, hidden: [OrderedDict(a=(logits,)), {"b": hidden.unsqueeze(1)}],
        lambda o: (o[0]["a"][0], o[1]["b"][:, 0]),
    ),
    "half": (lambda logits, hidden: (logits, hidden.double()), lambda o: (o[0], o[1].float())),
}


def parts_of(model, inputs, targets, **changes):
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH)
    changes = {"clip_norm": CLIP, "noise_multiplier": 0.0, "unsafe_no_noise": True, "steps": 8} | changes
    return make_private(model, SGD(model.parameters(), lr=1.0), loader, **changes)


def moved(model, before):
    return torch.cat([(p.detach() - q).flatten() for p, q in zip(model.parameters(), before, strict=True)])


def loop_sum(model, losses, x, y):
    """The clipped sum of a loop over records in float64."""
    model = copy.deepcopy(model).double()
    total = 0
    for i in range(len(x)):
        row = x[i : i + 1].double() if x.is_floating_point() else x[i : i + 1]
        gradients = torch.autograd.grad(losses(model, row, y[i : i + 1]).sum(), list(model.parameters()))
        gradient = torch.cat([g.flatten() for g in gradients])
        total = total + gradient * min(1.0, CLIP / float(gradient.norm()))
    return total


def check_one_step(model, losses, x, y):
    """One step without noise moves the weights by the clipped sum of the loop."""
    parts = parts_of(model, x, y, stream=SeededStream(1))
    before, reference = [p.detach().clone() for p in model.parameters()], copy.deepcopy(model)
    rows, targets = next(iter(parts.loader))
    losses(parts.model, rows, targets).backward()
    parts.optimizer.step()
    plain = [value.as_subclass(torch.Tensor) for value in (rows, targets)]
    expected = -loop_sum(reference, losses, *plain) / BATCH
    assert torch.allclose(moved(model, before).double(), expected, atol=1e-6 * float(expected.norm()))


@pytest.mark.parametrize("name", FORMS)
def test_any_container_of_outputs_gives_the_clipped_sum_of_a_loop(name):
    form, read = FORMS[name]

    def losses(model, x, y):
        logits, hidden = read(model(x))
        return cross_entropy(logits, y) + hidden.square().sum(1)

    check_one_step(Returning(form), losses, *blobs(RECORDS))


def test_inputs_in_containers_and_options_beside_them():
    class Nested(Returning):
        def forward(self, batch, scale=1.0, flag=None):
            return {"logits": super().forward(batch["x"], scale=scale)}

    def losses(model, x, y):
        return cross_entropy(model(UserDict(x=x), scale=0.5)["logits"], y)

    check_one_step(Nested(lambda logits, hidden: logits), losses, *blobs(RECORDS))


def test_integer_outputs_follow_the_rows_and_objects_are_dropped():
    model = Returning(lambda logits, hidden: {"logits": logits, "best": logits.argmax(1), "cache": object()})
    parts = parts_of(model, *blobs(RECORDS), noise_multiplier=1.0, unsafe_no_noise=False)
    for x, _ in parts.loader:
        outputs = parts.model(x)
        assert outputs["cache"] is None
        cross_entropy(outputs["logits"], outputs["best"]).backward()
        parts.optimizer.step()
    assert parts.facts["loss_rows"].how.value == "enforced"


def test_a_mean_inside_of_the_outputs_refuses_every_use():
    model = Returning(lambda logits, hidden: Output(logits, logits.mean()))
    parts = parts_of(model, *blobs(RECORDS))
    x, _ = next(iter(parts.loader))
    for use in (float, lambda v: v.backward(), lambda v: v * 2, lambda v: torch.ones(1) + v, lambda v: v.item()):
        with pytest.raises(TrainingMisuse, match=r"outputs\.loss must not be used.*losses\.backward\(\)"):
            use(parts.model(x).loss)
    with torch.no_grad(), pytest.raises(TrainingMisuse, match=r"outputs\.loss must not be used"):
        float(parts.model(x).loss)


def test_a_loss_that_mixes_rows_of_one_of_several_outputs_is_refused():
    parts = parts_of(Returning(Both), *blobs(RECORDS))
    x, y = next(iter(parts.loader))
    outputs = parts.model(x)
    with pytest.raises(MixesRecords, match=r"got aten\.mean at test_outputs.py"):
        (cross_entropy(outputs.logits, y) + (outputs.hidden - outputs.hidden.mean(0)).square().sum(1)).backward()


def test_a_model_that_mixes_rows_in_one_of_several_outputs_is_refused():
    parts = parts_of(Returning(lambda logits, hidden: (logits, hidden - hidden.mean(0))), *blobs(RECORDS))
    with pytest.raises(UnsupportedModel, match=r"mixes the examples|treat the records of a batch apart"):
        parts.model(next(iter(parts.loader))[0])


def test_a_number_that_follows_the_batch_is_no_public_option_and_no_output():
    parts = parts_of(Returning(lambda logits, hidden: (logits, len(logits))), *blobs(RECORDS), stream=SeededStream(0))
    x, _ = next(iter(parts.loader))
    with pytest.raises(TrainingMisuse, match=r"mixes the examples|treat the records of a batch apart"):
        _ = parts.model(x)[1] + 1
    parts = parts_of(Returning(lambda logits, hidden: logits), *blobs(RECORDS), stream=SeededStream(0), steps=30)

    def train():
        for x, y in (batch for _ in range(7) for batch in parts.loader):
            cross_entropy(parts.model(x, scale=1.0 / (1 + len(x))), y).backward()
            parts.optimizer.step()

    with pytest.raises(TrainingMisuse, match="'scale' of the model must stay the same"):
        train()


class Blocking(nn.Module):
    """A layer that cannot run on an empty batch, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        assert len(x)
        self.calls += 1
        return {"logits": self.layer(x.view(-1, 4)), "also": x.view(len(x), -1)}


def test_empty_batches_never_enter_the_model_and_its_state_moves_all_the_same():
    model = Blocking()
    loader = DataLoader(TensorDataset(*blobs(RECORDS)), batch_size=1)
    parts = make_private(model, SGD(model.parameters(), lr=1.0), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=1)
    empty = 0
    for x, y in parts.loader:
        empty, calls = empty + (not len(x)), int(model.calls)
        outputs = parts.model(x)
        assert outputs["logits"].shape == (len(x), 2)
        cross_entropy(outputs["logits"], y).backward()
        parts.optimizer.step()
        assert len(x) or int(model.calls) == calls + 1
    assert empty
    assert parts.ledger.steps == RECORDS


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_gives_every_segment_its_gradient(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = small_model()

        def forward(self, x):
            for layer in self.model:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

    # In the reentrant form torch gives a segment whose inputs need no gradient none, so the reference has no segments.
    model, x, y = Checkpointed(), *blobs(RECORDS)
    parts = parts_of(model, x, y, stream=SeededStream(1))
    before, reference = [p.detach().clone() for p in model.parameters()], copy.deepcopy(model.model)
    rows, targets = next(iter(parts.loader))
    cross_entropy(parts.model(rows), targets).backward()
    parts.optimizer.step()
    plain = [value.as_subclass(torch.Tensor) for value in (rows, targets)]
    expected = -loop_sum(reference, lambda m, a, b: cross_entropy(m(a), b), *plain) / BATCH
    assert torch.allclose(moved(model, before).double(), expected, atol=1e-6 * float(expected.norm()))


@pytest.mark.parametrize("where", ["parameters", "inputs", "both"])
def test_channels_last(where):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(8, 2)
    )
    if where != "inputs":
        model = model.to(memory_format=torch.channels_last)
    order = torch.channels_last if where != "parameters" else torch.contiguous_format

    def losses(model, x, y):
        return cross_entropy(model(x.to(memory_format=order)), y)

    check_one_step(model, losses, torch.randn(RECORDS, 3, 6, 6), blobs(RECORDS)[1])


def test_a_batch_of_a_mapping_class_keeps_its_rows_on_the_trace():
    class Mapping(UserDict):
        pass

    records = [{"x": x, "y": y} for x, y in zip(*blobs(RECORDS), strict=True)]
    model = small_model()
    loader = DataLoader(records, batch_size=BATCH, collate_fn=lambda rows: Mapping(default_collate(rows)))
    parts = make_private(model, SGD(model.parameters(), lr=1.0), loader, clip_norm=1.0, noise_multiplier=1.0, steps=4)
    for batch in parts.loader:
        assert type(batch) is Mapping
        cross_entropy(parts.model(batch["x"]), batch["y"]).backward()
        parts.optimizer.step()
    assert parts.facts["loss_rows"].how.value == "enforced"
