"""A private lottery ticket: a sparse network, found and trained with differential privacy."""

import torch

import tacit
from tacit import models
from tacit.noise import SeededStream
from tacit.tickets import PrivateTicket, TicketPlan

torch.manual_seed(0)
inputs = torch.randn(400, 20)
labels = inputs[:, :3].argmax(1)


def start():
    """Return the network at its initial weights, the same every time."""
    torch.manual_seed(0)
    return models.mlp(20, 3, hidden=(16,))


plan = TicketPlan("T2", epsilon=2.0, batch_size=50, epochs=3, search_epochs=2, densities=(0.5, 0.2))
done = PrivateTicket(start, (inputs, labels), plan, stream=SeededStream(0)).run()
print(f"{done.ticket.density:.0%} of the weights are left")
for entry in done.ledger.entries:
    print(f"{entry.steps:4d} x {entry.mechanism}  {entry.note}")
print(f"epsilon {tacit.accountant('pld')(done.ledger).epsilon(plan.delta):.3f}")
