"""Every rule of the table has a test of its meaning: here, in `test_rules.py`, `test_pointwise.py` or by its device."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.verification.rules import RULES
from tests.verification import further_cases, rule_cases, test_pointwise
from tests.verification.meaning import assignments, check_meaning, outputs

MOST = 40  # types of arguments of one call
DEVICES = ("cudnn", "mps", "efficient_attention", "_fused_", "overrideable")
OF_DEVICES = {name for name in RULES if any(part in name for part in DEVICES)} | {
    *("_conv_depthwise2d", "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
    *("linear", "mkldnn_linear"),
}
"""Kernels that run nowhere here: `test_device_rules.py`, and the kernels of the CPU that share their rule."""
REFUSED = {"_pdist_forward"}
"""Compare the records with each other, whatever they are."""
FURTHER = sorted({case.name for case in further_cases.CASES})


class Names(TorchDispatchMode):
    """Notes which operations run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name.partition("::")[2].rstrip("_"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", FURTHER)
def test_the_type_of_a_result_is_what_the_operation_does(name):
    torch.default_generator.manual_seed(0)
    found = 0
    for case in further_cases.CASES:
        if case.name == name:
            with Names() as seen:
                outputs(case.call, case.tensors())
            assert name.rstrip("_") in seen.names, f"{name} is not among {sorted(seen.names)}"
            found += sum(check_meaning(case, kinds) for kinds in assignments(case.tensors(), MOST))
    assert found or name in REFUSED


def test_every_rule_has_a_test_of_its_meaning():
    tested = {*test_pointwise.POINTWISE, *FURTHER, *(case.name for case in rule_cases.CASES), *OF_DEVICES}
    assert sorted(set(RULES) - tested) == []
    assert sorted(tested - set(RULES)) == []
