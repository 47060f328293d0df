"""Tickets: masks, pruning, files, transfer, data-free masks and generation."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from tacit import models
from tacit.errors import InvalidInput
from tacit.gradients import clipped_sum
from tacit.signing import Origin
from tacit.tickets import Ticket, iterative_tickets, prunable, solid, transfer, winning
from tacit.tickets.pruning import by_magnitude, paper_shares, random_masks, start_magnitude_masks, synflow_masks


def network(inputs=12, classes=3, hidden=(10, 8), seed=0):
    torch.manual_seed(seed)
    return models.mlp(inputs, classes, hidden=hidden)


def data(count=300, inputs=12, classes=3):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, inputs, generator=generator)
    return x, (x[:, :classes] + 0.1 * x[:, classes : 2 * classes]).argmax(1)


def ticket(density=0.4, provenance="public", model=None):
    model = model if model is not None else network()
    kept = dict.fromkeys(prunable(model), density)
    masks = random_masks(model, kept, torch.Generator().manual_seed(1))
    return Ticket(masks, {n: p.detach().clone() for n, p in model.named_parameters()}, provenance, "random")


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.floats(0.0, 0.9), st.integers(0, 99))
def test_a_round_of_pruning_removes_the_stated_share_and_never_revives(size, share, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(size, 3, generator=generator)
    mask = (torch.rand(size, 3, generator=generator) < 0.7).float()
    mask[0, 0] = 1.0
    (after,) = by_magnitude({"w": weight}, {"w": mask}, {"w": share}).values()
    assert bool((after <= mask).all())
    surviving = int(mask.sum())
    # cut = sorted[round(p n)] goes too: everything at most as large as it, so one more than round(p n).
    left = surviving - round(share * surviving) - 1
    assert int(after.sum()) == (left if left > 0 else surviving)
    if left > 0:
        assert weight[after > 0].abs().min() > weight[(mask > 0) & (after == 0)].abs().max()


def test_many_rounds_leave_every_layer_of_a_small_network_a_weight():
    masks = {"w": torch.ones(4, 8)}
    for round_ in range(30):
        generator = torch.Generator().manual_seed(round_)
        masks = by_magnitude({"w": torch.randn(4, 8, generator=generator)}, masks, {"w": 0.3})
    assert 1 <= int(masks["w"].sum()) <= 2
    assert by_magnitude({"w": torch.zeros(3)}, {"w": torch.ones(3)}, {"w": 0.3})["w"].all()


def test_the_papers_shares_are_30_30_20_percent():
    assert paper_shares(["0.weight", "2.weight", "4.weight"]) == {"0.weight": 0.3, "2.weight": 0.3, "4.weight": 0.2}


def test_biases_and_scales_are_never_pruned():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    assert prunable(model) == ["0.weight", "2.weight"]
    assert prunable(model, ["2.*"]) == ["2.weight"]
    with pytest.raises(InvalidInput, match=r"patterns must be fitting one of 0\.weight, 2\.weight"):
        prunable(model, ["conv*"])


def test_a_ticket_survives_its_file(tmp_path):
    made = ticket()
    made.save(tmp_path / "t.safetensors")
    again = Ticket.load(tmp_path / "t.safetensors")
    assert (again.provenance, again.note, again.density) == (made.provenance, made.note, made.density)
    assert all(torch.equal(again.masks[name], mask) for name, mask in made.masks.items())
    assert all(torch.equal(again.start[name], value) for name, value in made.start.items())
    (tmp_path / "broken.safetensors").write_bytes((tmp_path / "t.safetensors").read_bytes()[:-9])
    with pytest.raises(InvalidInput, match="complete safetensors file"):
        Ticket.load(tmp_path / "broken.safetensors")
    with pytest.raises(InvalidInput, match="a ticket file that exists"):
        Ticket.load(tmp_path / "none.safetensors")


def test_pruned_weights_get_no_gradient_and_do_not_count_in_the_norm():
    model = ticket().apply(network())
    x, y = data(20)
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    sums, norms = clipped_sum(model, loss, x, y, clip_norm=1e6)
    reference = []
    for i in range(len(x)):
        gradients = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]).sum(), list(model.parameters()))
        reference.append(torch.cat([gradient.flatten() for gradient in gradients]))
    stacked = torch.stack(reference)
    torch.testing.assert_close(norms, stacked.norm(dim=1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        torch.cat([part.flatten() for part in sums.values()]), stacked.sum(0), rtol=1e-3, atol=1e-4
    )
    for name, mask in ticket().masks.items():
        path, _, leaf = name.rpartition(".")
        assert sums[f"{path}.parametrizations.{leaf}.original"].shape == (int(mask.sum()),)


def test_a_solid_network_has_exact_zeros_and_the_same_outputs():
    made = ticket()
    model = made.apply(network())
    x, _ = data(5)
    before = model(x)
    again = solid(model)
    assert {name for name, _ in again.named_parameters()} == set(made.start)
    torch.testing.assert_close(again(x), before)
    for name, mask in made.masks.items():
        assert not again.get_parameter(name)[mask == 0].any()


def test_transfer_keeps_shared_layers_and_leaves_the_rest_dense():
    wide = ticket(model=network(12, 3))
    target = network(12, 5, seed=3)
    moved = transfer(wide, target)
    assert torch.equal(moved.masks["0.weight"], wide.masks["0.weight"])
    assert torch.equal(moved.start["2.weight"], wide.start["2.weight"])
    assert bool((moved.masks["4.weight"] == 1).all())
    assert torch.equal(moved.start["4.weight"], target.get_parameter("4.weight"))
    moved.apply(network(12, 5))
    with pytest.raises(InvalidInput, match="shares a masked layer"):
        transfer(wide, torch.nn.Linear(2, 2))
    with pytest.raises(InvalidInput, match="of the ticket's architecture"):
        wide.apply(network(12, 5))


def test_data_free_masks_keep_what_they_are_asked_to():
    model = network()
    kept = dict.fromkeys(prunable(model), 0.25)
    for masks in (random_masks(model, kept, torch.Generator().manual_seed(0)), start_magnitude_masks(model, kept)):
        for mask in masks.values():
            assert int(mask.sum()) == round(0.25 * mask.numel())
    largest = start_magnitude_masks(model, kept)["0.weight"]
    weight = model.get_parameter("0.weight").detach().abs()
    assert weight[largest > 0].min() >= weight[largest == 0].max()


def test_synflow_keeps_the_density_and_connects_every_output():
    model = network(40, 4, hidden=(30, 20))
    masks = synflow_masks(model, 0.05, torch.zeros(40))
    total = sum(mask.numel() for mask in masks.values())
    assert sum(float(mask.sum()) for mask in masks.values()) == round(0.05 * total)
    positive = {name: masks[name] * model.get_parameter(name).abs() for name in masks}
    flow = positive["4.weight"] @ positive["2.weight"] @ positive["0.weight"]
    assert bool((flow.sum(1) > 0).any())
    assert float(masks["0.weight"].sum()) > 0


def accuracy_of(x, y):
    return lambda model: float((model(x).argmax(1) == y).float().mean())


def test_generation_rewinds_prunes_and_goes_on_where_it_was_stopped(tmp_path):
    x, y = data()
    arguments = {"provenance": "public", "accuracy": accuracy_of(x, y), "iterations": 60, "batch_size": 50}
    start = {name: value.detach().clone() for name, value in network().named_parameters()}
    whole = iterative_tickets(network(), x, y, rounds=3, **arguments)
    assert [round(each.density, 2) for each in whole] == pytest.approx([0.69, 0.48, 0.33], abs=0.04)
    for earlier, later in pairwise(whole):
        assert all(bool((later.masks[name] <= earlier.masks[name]).all()) for name in later.masks)
    assert all(torch.equal(whole[-1].start[name], value) for name, value in start.items())
    assert whole[0].measured["accuracy"] > 0.6
    assert whole[1].measured["before"] == whole[0].measured["accuracy"]

    iterative_tickets(network(), x, y, rounds=1, folder=tmp_path, **arguments)
    seen = []
    again = iterative_tickets(
        network(),
        x,
        y,
        rounds=3,
        folder=tmp_path,
        on_progress=lambda done, total: seen.append((done, total)),
        **arguments,
    )
    assert seen[0][0] > 120
    assert seen[-1] == (240, 240)
    for one, other in zip(whole, again, strict=True):
        assert all(torch.equal(one.masks[name], other.masks[name]) for name in one.masks)
        assert one.measured == pytest.approx(other.measured)
    with pytest.raises(InvalidInput, match="tickets of this model"):
        iterative_tickets(network(seed=9), x, y, rounds=3, folder=tmp_path, **arguments)


def test_the_winning_ticket_is_small_and_near_the_full_accuracy():
    made = [ticket(density) for density in (0.5, 0.1, 0.05, 0.02)]
    accuracies = [0.95, 0.951, 0.949, 0.7]
    measured = [Ticket(t.masks, t.start, "public", "", {"accuracy": a}) for t, a in zip(made, accuracies, strict=True)]
    assert winning(measured, 0.95, largest_density=0.11).density == pytest.approx(0.05, abs=0.02)
    with pytest.raises(InvalidInput, match="largest_density must be at least"):
        winning(measured, 0.95, largest_density=0.001)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"provenance": "secret"}, "provenance must be one of public, private, paper"),
        ({"masks": {}}, "masks must be of parameters that have a start"),
        ({"masks": {"other": torch.ones(2)}}, "masks must be of parameters"),
        ({"masks": {"w": torch.full((2,), 0.5)}}, "mask of w must be zeros and ones"),
        ({"masks": {"w": torch.ones(3)}}, "mask of w must be zeros and ones"),
        ({"masks": {"w": torch.tensor(1.0)}}, "mask of w must be a tensor with at least one value"),
        ({"masks": {"w": torch.ones(0, 3)}}, "mask of w must be a tensor with at least one value"),
        *(({"measured": value}, "measured must be a table") for value in (5, None, [], "")),
        *(({"measured": {"accuracy": v}}, "measured accuracy must be in") for v in (5, -1, math.nan, "x", None)),
    ],
)
def test_bad_tickets(change, sentence):
    good = {"masks": {"w": torch.ones(2)}, "start": {"w": torch.zeros(2)}, "provenance": "public"}
    with pytest.raises(InvalidInput, match=sentence):
        Ticket(**(good | change))
    assert np.isclose(Ticket(**good).density, 1.0)


def rewritten(path, change):
    """The file with its header changed, as anyone can write it."""
    with safe_open(str(path), "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        described = file.metadata()
    change(described, tensors)
    save_file(tensors, str(path), described)


def flip(described, tensors):
    tensors[next(name for name in tensors if name.startswith("mask"))].view(-1)[0] ^= 1


@pytest.mark.parametrize(
    "change",
    [
        lambda described, tensors: described.update(provenance="public"),
        lambda described, tensors: described.update(measured='{"accuracy": 1.0}'),
        lambda described, tensors: described.update(signature="no JSON"),
        lambda described, tensors: described.update(signature="{}"),
        flip,
    ],
)
def test_a_ticket_that_was_changed_after_it_was_signed_is_refused(tmp_path, change):
    path = tmp_path / "ticket.safetensors"
    ticket(provenance="paper").save(path)
    assert Ticket.load(path).trusted
    rewritten(path, change)
    with pytest.raises(InvalidInput, match="as it was signed"):
        Ticket.load(path)


def test_a_ticket_without_a_signature_is_read_but_vouched_for_by_nobody(tmp_path):
    path = tmp_path / "ticket.safetensors"
    ticket(provenance="public").save(path)
    rewritten(path, lambda described, tensors: described.pop("signature"))
    loaded = Ticket.load(path)
    assert loaded.origin is Origin.UNSIGNED
    again = tmp_path / "again.safetensors"
    transfer(loaded, network()).save(again)
    # What is made of it, or written again, does not become this user's own.
    assert Ticket.load(again).origin is Origin.UNSIGNED
