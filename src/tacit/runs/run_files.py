"""The files in a run's folder: their names, and SHA-256 over each; nothing is imported that base installs lack."""

from __future__ import annotations

import hashlib
from pathlib import Path

CONFIG, LEDGER, CARD, PAGE = "config.json", "ledger.json", "card.json", "card.html"
EXECUTION = "execution.json"
"""The execution records of a run, one for each way in which its steps were computed."""
PREPROCESSING = "preprocessing.json"
"""What turns rows into features, and outputs into answers."""
MODEL = "model.safetensors"
"""The private model."""
BUDGET = "budget.json"
"""The reservation of the run in a registry."""
VALIDATION = "validation.json"
"""By what this user's key finds the private validation records again."""
CHECKPOINT = "checkpoint.safetensors"
"""From which a run can go on; gone once the run is finished."""
SEARCH = "search.sealed"
"""From which a search can go on, sealed; gone once the search is finished."""
SIGNATURE = "signature.json"
"""The signature of the others."""
TRAINED = "trained.json"
"""What the card of a run will say of its trained model; gone once the run is finished."""
VERIFIED = "verified.json"
"""What `tacit verify` found in a received run, with a signature of its own."""
FEATURES = "features.safetensors"
"""What the features of a run were computed with, such as a whitening matrix."""
TICKET = "ticket.safetensors"
"""The lottery ticket of a run that found one."""
SIGNED = (CONFIG, LEDGER, CARD, PAGE, EXECUTION, MODEL, PREPROCESSING, BUDGET, VALIDATION, TICKET, FEATURES)
"""The files of a run that its signature covers, those of them that are there."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits; empty where there is no regular file."""
    if not path.is_file():
        return ""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def digests_of(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in `SIGNED` that is in the folder, by name."""
    return {name: digest_of(folder / name) for name in SIGNED if (folder / name).is_file()}
