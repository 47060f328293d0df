"""What the tests of gradients share."""

import pytest

from tacit.gradients import model_probe
from tacit.gradients.model_probe import RecordCheck


@pytest.fixture
def without_types(monkeypatch):
    """Record types say nothing, so that what replaces records is tested by itself."""
    monkeypatch.setattr(model_probe, "check_records", lambda *given: RecordCheck())
