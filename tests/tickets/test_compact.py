"""Removing dead neurons changes no step: same outputs, same norms, same gradients of what is left."""

import pytest
import torch
from torch import nn

from tacit import models
from tacit.gradients import clipped_sum
from tacit.noise import SeededStream
from tacit.tickets import PrivateTicket, Ticket, TicketPlan, compact, prunable, solid
from tacit.training import private_step
from tests.tickets.test_tickets import data

LOSS = nn.CrossEntropyLoss(reduction="none")


def network(activation=nn.ReLU):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(8, 5), activation(), nn.Linear(5, 3))
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), activation(), body)


def holes(dead_inputs=(0, 5), dead=((1, 2, 7), (3,)), density=0.7):
    """A ticket of `network` whose inputs and hidden neurons of these numbers are read by nothing."""
    model = network()
    generator = torch.Generator().manual_seed(3)
    weights = {name: model.get_parameter(name) for name in prunable(model)}
    masks = {name: (torch.rand(w.shape, generator=generator) < density).float() for name, w in weights.items()}
    masks["1.weight"][:, list(dead_inputs)] = 0
    masks["3.0.weight"][:, list(dead[0])] = 0
    masks["3.2.weight"][:, list(dead[1])] = 0
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    return Ticket(masks, start, "public")


def of_masked(ticket, parts):
    """Gradients by coordinates of the whole network, from those of the surviving weights."""
    found = {}
    for name, start in ticket.start.items():
        path, _, leaf = name.rpartition(".")
        values = parts.get(name)
        if values is None:
            values = torch.zeros(start.numel())
            values[ticket.masks[name].flatten() > 0] = parts[f"{path}.parametrizations.{leaf}.original"]
        found[name] = values.view(start.shape)
    return found


def of_compact(ticket, parts):
    """The same from the compact network: written to their places as if they were weights, without what was there."""

    def written(values):
        small = compact(ticket, network())
        with torch.no_grad():
            for name, value in small.named_parameters():
                value.copy_(values[name])
        return small.scattered(network())

    nothing = written({name: torch.zeros_like(part) for name, part in parts.items()})
    return {n: v.detach() - nothing.get_parameter(n).detach() for n, v in written(parts).named_parameters()}


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Sigmoid])
def test_outputs_norms_and_gradients_are_those_of_the_masked_network(activation):
    ticket = holes()
    x, y = data(40)
    masked, small = ticket.apply(network(activation)), compact(ticket, network(activation))
    assert small.removed == (2, 4)
    torch.testing.assert_close(small(x), masked(x))
    sums, norms = clipped_sum(masked, LOSS, x, y, clip_norm=0.5)
    small_sums, small_norms = clipped_sum(small, LOSS, x, y, clip_norm=0.5)
    torch.testing.assert_close(small_norms, norms, rtol=1e-5, atol=1e-6)
    one, other = of_masked(ticket, sums), of_compact(ticket, small_sums)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-6)
    assert sum(v.numel() for v in small_sums.values()) < sum(v.numel() for v in sums.values())


@pytest.mark.parametrize("engine", ["eager", "recorded"])
def test_twenty_steps_without_noise_end_in_the_same_network(engine):
    """The masked network in either engine, and the compact one."""
    ticket = holes()
    x, y = data(60)
    ends = []
    for model, way in ((ticket.apply(network()), engine), (compact(ticket, network()), "eager")):
        step = private_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.5),
            LOSS,
            clip_norm=0.5,
            noise_multiplier=0.0,
            expected_batch_size=60,
            engine=way,
            unsafe_no_noise=True,
        )
        for _ in range(20):
            step(x, y)
        ends.append(model)
    masked, small = solid(ends[0]), ends[1].scattered(network())
    assert not torch.allclose(masked.get_parameter("1.weight"), ticket.start["1.weight"] * ticket.masks["1.weight"])
    for name, value in masked.named_parameters():
        torch.testing.assert_close(small.get_parameter(name), value, rtol=1e-4, atol=1e-6)


def test_noise_has_the_same_size_on_every_coordinate_that_is_left():
    """One step on an empty batch moves a coordinate by rate * N(0, (noise clip / expected)^2) = N(0, 1).

    The sum of squares of about 80 coordinates lies in [20, 200] but with probability below 1e-6.
    """
    ticket = holes()
    for model in (ticket.apply(network()), compact(ticket, network())):
        before = [value.detach().clone() for value in model.parameters()]
        step = private_step(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            LOSS,
            clip_norm=2.0,
            noise_multiplier=5.0,
            expected_batch_size=10,
            stream=SeededStream(2),
        )
        step(torch.zeros(0, 12), torch.zeros(0, dtype=torch.long))
        moved = torch.cat(
            [(value.detach() - old).flatten() for value, old in zip(model.parameters(), before, strict=True)]
        )
        assert 60 < len(moved) < 120
        assert 20 < float(moved.square().sum()) < 200


def test_a_run_gives_back_the_whole_architecture():
    ticket = holes()
    x, y = data(300)
    plan = TicketPlan("T1", epsilon=4.0, batch_size=50, epochs=4)
    done = PrivateTicket(network, (x, y), plan, candidates=[ticket], stream=SeededStream(0)).run(
        evaluate=lambda model: {"test": float((model(x).argmax(1) == y).float().mean())}
    )
    assert {name for name, _ in done.model.named_parameters()} == set(ticket.start)
    for name, mask in ticket.masks.items():
        assert not done.model.get_parameter(name)[mask == 0].any()
    reached = float((done.model(x).argmax(1) == y).float().mean())
    assert reached == pytest.approx(done.history[-1]["test"], abs=1e-6)


@pytest.mark.parametrize(
    "build",
    [
        lambda: models.convnet((1, 16, 16), 3),
        lambda: nn.Sequential(nn.Linear(12, 8), nn.LayerNorm(8), nn.Linear(8, 3)),
        lambda: nn.Sequential(nn.Linear(12, 8), nn.Dropout(), nn.Linear(8, 3)),
    ],
)
def test_other_networks_and_whole_ones_are_left_alone(build):
    model = build()
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    masks = {name: torch.ones_like(start[name]) for name in prunable(model)}
    assert compact(Ticket(masks, start, "public"), model) is None
    plain = network()
    start = {name: value.detach().clone() for name, value in plain.named_parameters()}
    masks = {name: torch.ones_like(start[name]) for name in prunable(plain)}
    assert compact(Ticket(masks, start, "public"), plain) is None


def test_a_network_with_nothing_left_in_a_layer_still_runs():
    ticket = holes(dead_inputs=range(12), density=0.3)
    small = compact(ticket, network())
    x, _ = data(10)
    torch.testing.assert_close(small(x), ticket.apply(network())(x))


def test_a_network_without_a_weight_in_a_layer_trains():
    """Compacted, the layer has a parameter without elements."""
    ticket = holes(density=0.0)
    done = PrivateTicket(
        network,
        data(60),
        TicketPlan("T1", epsilon=2.0, batch_size=10, epochs=1),
        candidates=[ticket],
        stream=SeededStream(0),
    ).run()
    assert done.ledger.steps == 6
