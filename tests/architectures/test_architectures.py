"""Raw models of the libraries train privately, and their clipped sums are those of a loop in float64.

A few run among the quick tests; `pytest -m slow tests/architectures` runs all of them.
"""

import pytest

from tests.architectures.compare import STEPS, compare
from tests.architectures.zoo import ARCHITECTURES, define_torchvision_operators, installed

QUICK = ("BertForMaskedLM", "GPT2LMHeadModel", "LoRA on Llama")
SLOWER = {
    "DebertaV2ForSequenceClassification", "MambaForCausalLM", "MixtralForCausalLM", "T5ForConditionalGeneration",
    "SwinForImageClassification", "DoRA on Llama",
}  # fmt: skip


def marked(architecture):
    marks = [] if architecture.name in QUICK else [pytest.mark.slow]
    return pytest.param(architecture, id=architecture.name, marks=marks)


@pytest.mark.slow_cases
@pytest.mark.parametrize("architecture", [marked(one) for one in ARCHITECTURES])
def test_a_raw_model_trains_with_the_clipped_sum_of_a_float64_loop(architecture):
    if not installed(architecture.library):
        pytest.skip(f"{architecture.library} is not installed")
    define_torchvision_operators()
    row = compare(architecture)
    assert not row.refused
    assert row.error <= 1e-5
    assert row.steps == STEPS
    assert row.engine == "captured" or architecture.name in SLOWER
