"""The layers that Opacus needs in the place of torch's; here torch's own, whose per-sample gradients are made.

States are those of torch's layers, as the states of Opacus's are.
"""

from __future__ import annotations

from torch import nn


class DPLSTM(nn.LSTM):
    """`torch.nn.LSTM` under the name of Opacus."""


class DPGRU(nn.GRU):
    """`torch.nn.GRU` under the name of Opacus."""


class DPRNN(nn.RNN):
    """`torch.nn.RNN` under the name of Opacus."""


class DPMultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` under the name of Opacus."""
