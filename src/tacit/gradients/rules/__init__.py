"""One file for each kind of operation that uses parameters; importing this package registers them all."""

from tacit.gradients.rules import attention, convolution, embedding, linear, norm, raw, recurrent

__all__ = ["attention", "convolution", "embedding", "linear", "norm", "raw", "recurrent"]
