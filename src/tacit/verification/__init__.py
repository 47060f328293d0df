"""Record types: whether a program treats the records of a batch apart, decided operation by operation.

Example:
    >>> import torch
    >>> from tacit.verification import check_recordwise
    >>> model = torch.nn.Linear(3, 2)
    >>> check_recordwise(model, torch.randn(4, 3)).reads
    ()
"""

from tacit.verification.recordwise import Recordwise, check_recordwise

__all__ = ["Recordwise", "check_recordwise"]
