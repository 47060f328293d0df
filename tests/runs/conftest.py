"""Small default evidence: what it finds is the matter of `test_default_evidence.py` alone."""

import pytest


@pytest.fixture(autouse=True, scope="package")
def small_evidence():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tacit.runs.default_evidence._CANARIES", 200)
        patch.setattr("tacit.audit.evidence.SIMULATED", 2)
        yield
