"""Public checks for parts that you write yourself: accountants, mechanisms, clips, attacks and samplers.

Each check runs the suite that every part of this library passes, needs no test framework, and raises `AssertionError`
with one sentence that names the broken property.
"""

from tacit.testing.accountant import check_accountant
from tacit.testing.attack import check_attack
from tacit.testing.clip import check_clip
from tacit.testing.mechanism import check_mechanism
from tacit.testing.sampler import check_sampler

__all__ = ["check_accountant", "check_attack", "check_clip", "check_mechanism", "check_sampler"]
