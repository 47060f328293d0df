"""Reading the folder of an earlier run, which may come from somebody else: it is data and never code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

from tacit import check
from tacit.accounting import Ledger
from tacit.errors import CodeWarning, InvalidInput, PrivacyWarning
from tacit.models.named import code_of
from tacit.runs.config import Config, config_from_table
from tacit.runs.run_signature import origin_of_run
from tacit.serialization import json_table
from tacit.signing import Origin, code_digest

Overrides = Mapping[str, object]


def stored_config(folder: Path, overrides: Overrides, *, trust_code: bool = False, stopped: bool = False) -> Config:
    """The settings of the run in `folder`, those of `overrides` that are not None replaced.

    A model of the user's own is code. It is accepted where this user's key signed the run with that very source, and
    otherwise only with `trust_code`; nothing is imported to find that out.

    Args:
        folder: of the run.
        overrides: settings to replace.
        trust_code: accept the model's source, whatever wrote the run; its hash is shown in a `CodeWarning`.
        stopped: the run may have been stopped before it wrote its ledger.

    Raises:
        InvalidInput: the folder is no run, its settings break a rule, or its model is code that nobody vouches for.
    """
    for name in ("config.json",) if stopped else ("config.json", "ledger.json"):
        if not (folder / name).is_file():
            raise check.fail("RUN", f"the folder of a `tacit train`, with {name} in it", str(folder))
    stored = json_table("config.json", folder / "config.json")
    config = config_from_table(stored | {key: value for key, value in overrides.items() if value is not None})
    if ":" in config.model:
        _check_code(config.model, folder, trust_code)
    return config


def stored_ledger(folder: Path) -> Ledger:
    """The ledger of the run in `folder`; raises `InvalidInput` where it is not the one that the card was made of.

    Of a run that this user's key signed, a ledger that was changed since is refused.
    """
    ledger, card = Ledger.load(folder / "ledger.json"), folder / "card.json"
    if card.exists() and json_table("card.json", card).get("ledger_hash", ledger.hash) != ledger.hash:
        hint = "One of the two was replaced."
        raise check.fail("RUN", "a folder whose ledger.json is the one of its card.json", str(folder), hint)
    if "ledger.json" in origin_of_run(folder).changed():
        raise InvalidInput("ledger.json must be as the run wrote it last; it is not. `tacit verify RUN` tells more.")
    return ledger


def warn_of_origin(folder: Path) -> None:
    """Warn of a run that this user's key did not sign, or whose files were changed since it did."""
    origin = origin_of_run(folder)
    changed = origin.changed()
    if changed:
        told = f"{', '.join(changed)} of this run: changed after this user's key signed it"
    elif origin.signature is not Origin.OWN:
        told = f"this run is {origin.signature.value}"
    else:
        return
    warnings.warn(f"{told}. Its numbers are what its files say; `tacit verify RUN` tells more.", PrivacyWarning, 3)


def _check_code(model: str, folder: Path, trust_code: bool) -> None:
    """A run that came from elsewhere must not name code that is run when it is looked at."""
    files = code_of(model)
    if not files:
        raise check.fail("model", "a module that can be found", model)
    shown = f"{files[-1]} (sha256 {code_digest(files)})"
    origin = origin_of_run(folder)
    if trust_code:
        warnings.warn(f"the model of this run is code that is run now: {shown}.", CodeWarning, 3)
        return
    if any(folder.resolve() in file.parents for file in files):
        hint = f"It is {shown}. Read it; --trust-code runs it."
        raise check.fail("model", "a module outside of the run's folder", model, hint)
    if origin.of("config.json") is Origin.OWN and origin.code == code_digest(files):
        return
    same = "this user's key did not sign the run with it"
    raise InvalidInput(
        f"model must be one of tacit's own, or code that is trusted; got {model!r}: {shown}, and {same}. "
        "Read that file; --trust-code (trust_code=True) runs it."
    )
