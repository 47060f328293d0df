"""`verify_capture` refuses models by the name of the layer, and leaves the model as it was."""

import gc
import weakref
from functools import partial
from types import FunctionType

import pytest
import torch
from torch import nn

from tacit.clipping import FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients import clipped, clipped_sum
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.deferred import DeferredSum
from tacit.gradients.verify_capture import verify_capture
from tests.gradients.cases import assert_same, cross_entropy, oracle, readout, squared_error
from tests.gradients.modules import RecordByRecord

pytestmark = pytest.mark.usefixtures("without_types")

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Counting(nn.Module):
    """A running mean of private data, kept as a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x


def test_a_layer_of_ones_own_that_mixes_examples_is_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Centred(), nn.Linear(4, 2)))
    with pytest.raises(UnsupportedModel, match=r"layer '1\.0' \(Centred\) mixes the examples of a batch"):
        clipped_sum(model, readout, X, torch.zeros(6), clip_norm=1.0)


def test_a_loss_that_mixes_examples_is_refused():
    def loss(outputs, targets):
        losses = squared_error(outputs, targets)
        return losses / losses.detach().mean()

    with pytest.raises(UnsupportedModel, match="the loss of an example depends on the other examples"):
        clipped_sum(nn.Linear(4, 2), loss, X, torch.zeros(6, 2), clip_norm=1.0)


def centred(outputs, targets, mixing=False):
    return squared_error(outputs - outputs.mean(0) if mixing else outputs, targets)


class Centring:
    def __init__(self, mixing):
        self.mixing = mixing

    def __call__(self, outputs, targets):
        return centred(outputs, targets, self.mixing)

    def method(self, outputs, targets):
        return self(outputs, targets)


def with_default(mixing):
    def loss(outputs, targets, mixing=mixing):
        return centred(outputs, targets, mixing)

    return loss


def with_keyword(mixing):
    def loss(outputs, targets, *, mixing=mixing):
        return centred(outputs, targets, mixing)

    return loss


def with_global(mixing):
    return FunctionType((lambda *given: NAMED(*given)).__code__, {"NAMED": Centring(mixing)})


NAMED = Centring(False)
FORMS = {
    "closure": lambda mixing: lambda outputs, targets: centred(outputs, targets, mixing),
    "object in a closure": lambda mixing: (lambda form: lambda *given: form(*given))(Centring(mixing)),
    "default": with_default,
    "keyword default": with_keyword,
    "method": lambda mixing: Centring(mixing).method,
    "callable object": Centring,
    "partial": lambda mixing: partial(centred, mixing=mixing),
    "global": with_global,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_verification_is_of_one_loss_whatever_code_it_shares(form):
    model = nn.Linear(4, 2)
    for _ in range(2):
        clipped_sum(model, form(False), X, torch.zeros(6, 2), clip_norm=1.0)
        with pytest.raises(UnsupportedModel, match="the loss of an example depends on the other examples"):
            clipped_sum(model, form(True), X, torch.zeros(6, 2), clip_norm=1.0)


def test_a_loss_that_a_loop_writes_anew_is_examined_once(monkeypatch):
    examined = []
    monkeypatch.setattr(
        clipped, "verify_capture", lambda *given, **named: examined.append(given) or verify_capture(*given, **named)
    )
    model, scale, shift = nn.Linear(4, 2), torch.ones(()), 0.5
    for _ in range(3):
        clipped_sum(model, lambda o, t: scale * squared_error(o, t) + shift, X, torch.zeros(6, 2), clip_norm=1.0)
    assert len(examined) == 1


@pytest.mark.slow
def test_verifications_neither_accumulate_nor_keep_the_model_alive():
    model = nn.Linear(4, 2)
    for count in range(clipped._KEPT_VERIFICATIONS + 3):
        clipped_sum(model, lambda o, t, c=count: squared_error(o, t) + c, X, torch.zeros(6, 2), clip_norm=1.0)
    assert len(clipped._VERIFICATIONS[model]) == clipped._KEPT_VERIFICATIONS
    clipped_sum(model, lambda o, t, m=model: squared_error(o, t) * len(m.weight), X, torch.zeros(6, 2), clip_norm=1.0)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_state_that_follows_the_records_is_named():
    model = nn.Sequential(nn.Linear(4, 4), Counting(), nn.Linear(4, 2))
    with pytest.raises(UnsupportedModel, match=r"tensor .1\.mean. of the model follows the records"):
        clipped_sum(model, readout, X, torch.zeros(6), clip_norm=1.0)


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_dropout_does_not_look_like_mixing_and_stays_random(probability):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(probability), nn.Linear(50, 2))
    first, _ = clipped_sum(model, readout, X, torch.zeros(6), clip_norm=1.0)
    again, _ = clipped_sum(model, readout, X, torch.zeros(6), clip_norm=1.0)
    assert torch.equal(first["2.weight"], again["2.weight"]) == (probability == 0)


def test_other_randomness_goes_through_the_fallback():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.randn(len(x), 2)

    engine = ClippedSum(Noisy(4, 2), FlatClip(1.0))
    assert "random operations" in engine.fallback_reason(squared_error, X, torch.zeros(6, 2))


def test_a_loss_that_uses_the_parameters_is_differentiated_through_them():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)

    def loss(outputs, targets):
        return squared_error(outputs, targets) + outputs.new_ones(len(outputs)) * owner.weight.square().sum()

    owner = model
    found = clipped_sum(model, loss, X, torch.zeros(6, 2), clip_norm=0.5)
    expected = []
    for i in range(6):
        value = loss(model(X[i : i + 1]), torch.zeros(1, 2)).sum()
        expected.append(torch.autograd.grad(value, [model.weight, model.bias]))
    norms = torch.stack([(w.square().sum() + b.square().sum()).sqrt() for w, b in expected])
    torch.testing.assert_close(found[1], norms, rtol=1e-4, atol=0)


def test_weights_gradients_modes_and_random_state_are_left_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0), nn.Linear(3, 2)).eval()
    model[0].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    clipped_sum(model, readout, X, torch.zeros(6), clip_norm=1.0)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [p.requires_grad for p in model.parameters()] == [True, False, True, True]
    assert not model.training
    assert all(p.grad is None for p in model.parameters())


def test_a_model_that_takes_another_path_is_still_right():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.first(x) if len(x) % 2 else self.second(x)

    torch.manual_seed(0)
    model = Branching()
    clipped_sum(model, readout, X, torch.zeros(6), clip_norm=1.0)
    sums, _ = clipped_sum(model, readout, X, torch.zeros(6), clip_norm=1.0)
    assert all(torch.isfinite(value).all() for value in sums.values())


def test_a_first_batch_with_bad_records_is_not_final():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    bad, y = X.clone(), torch.tensor([0, 1, 2, 0, 1, 2])
    bad[:, 1] = torch.nan
    clipped_sum(model, cross_entropy, bad, y, clip_norm=1.0)
    engine = ClippedSum(model, FlatClip(1.0))
    assert engine.fallback_reason(cross_entropy, X, y) == ""
    total, norms = engine(cross_entropy, X, y)
    assert_same((total.parts, norms), oracle(model, cross_entropy, X, y, 1.0), clip_norm=1.0)


def test_another_loss_is_examined_anew():
    torch.manual_seed(0)
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    clipped_sum(model, squared_error, X, torch.zeros(6, 2), clip_norm=1.0)

    def penalised(outputs, targets):
        return squared_error(outputs, targets) + model.bias.square().sum()

    _, norms = clipped_sum(model, penalised, X, torch.zeros(6, 2), clip_norm=1.0)
    _, plain = clipped_sum(model, squared_error, X, torch.zeros(6, 2), clip_norm=1.0)
    assert not torch.allclose(norms, plain, rtol=1e-3)


class AtTheKink(nn.Module):
    """One of many activations is zero up to rounding: in single precision, its sign depends on the batch."""

    def __init__(self, share=0.02):
        super().__init__()
        self.main, self.side, self.share = nn.Linear(4, 3), nn.Linear(4, 3), share

    def forward(self, x):
        side = self.side(x)
        zero = side - side.detach()
        if len(x) > 1 and x.dtype == torch.float32:
            zero = zero + 1e-12
        return self.main(x) + self.share * zero.relu()


def test_an_activation_of_either_sign_by_rounding_does_not_cost_the_fast_path():
    clipped = ClippedSum(AtTheKink(), FlatClip(1.0))
    assert clipped.fallback_reason(squared_error, X, torch.randn(6, 3)) == ""


def test_a_large_difference_in_single_precision_is_no_rounding():
    clipped = ClippedSum(AtTheKink(share=1.0), FlatClip(1.0))
    assert "side" in clipped.fallback_reason(squared_error, X, torch.randn(6, 3))


def test_a_layer_on_one_record_after_the_other_has_the_gradients_of_a_loop():
    model, x, y = RecordByRecord(), torch.randn(7, 6), torch.arange(7) % 3
    engine = DeferredSum(model, FlatClip(0.2))
    recording = engine.record(x)
    leaf = recording.outputs.detach().requires_grad_()
    (cotangents,) = torch.autograd.grad(cross_entropy(leaf, y).sum(), leaf)
    for total, norms in (engine.release(recording, cotangents), engine(cross_entropy, x, y)):
        expected = oracle(model, cross_entropy, x, y, 0.2)
        assert_same((total.parts, norms), expected, clip_norm=0.2)
