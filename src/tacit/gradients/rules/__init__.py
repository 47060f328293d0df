"""One file for each kind of operation that uses parameters; importing this package registers them all."""

from tacit.gradients.rules import convolution, embedding, linear, raw, sequence

__all__ = ["convolution", "embedding", "linear", "raw", "sequence"]
