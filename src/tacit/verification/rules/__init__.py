"""Rules of operations: what each does to the record types of its arguments, one file for each kind."""

from tacit.verification.calls import RULES
from tacit.verification.rules import arithmetic, indexing, layers, reductions, sequence
from tacit.verification.rules.factories import DRAWN, DRAWS, FACTORIES, FILLS, UNWRITTEN, drawn

__all__ = [
    "DRAWN", "DRAWS", "FACTORIES", "FILLS", "RULES", "UNWRITTEN", "arithmetic", "drawn", "indexing", "layers",
    "reductions", "sequence",
]  # fmt: skip
