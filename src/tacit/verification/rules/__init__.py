"""Rules of operations: what each does to the record types of its arguments, one file for each kind."""

from tacit.verification.rules import indexing, layers, pointwise, products, reductions, shapes
from tacit.verification.rules.factories import DRAWS, FACTORIES, FILLS, UNWRITTEN, drawn
from tacit.verification.rules.registry import RULES

__all__ = [
    "DRAWS", "FACTORIES", "FILLS", "RULES", "UNWRITTEN", "drawn", "indexing", "layers", "pointwise", "products",
    "reductions", "shapes",
]  # fmt: skip
