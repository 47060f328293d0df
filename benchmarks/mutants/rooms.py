"""Which test files are run for a patched file: those of its room, the likeliest first."""

from __future__ import annotations

import tomllib
from pathlib import Path

_LOOP = [
    "tests/training/test_wrapped.py",
    "tests/training/test_losses.py",
    "tests/training/test_make_private.py",
    "tests/training/test_variants.py",
    "tests/opacus/test_engine.py",
]
_ERM = ["tests/erm/test_sensitivity.py", "tests/erm/test_noise.py", "tests/erm/test_estimators.py"]
_GRADIENTS = ["tests/gradients", "tests/clipping"]
_ACCOUNTANTS = ["tests/accounting/test_accountants.py", "tests/accounting/test_pld.py"]
# The longest prefix of the patched file counts.
_ROOMS = {
    "relation.py": _ACCOUNTANTS,
    "calibration.py": ["tests/test_calibration.py"],
    "accounting/": _ACCOUNTANTS,
    "accounting/base.py": ["tests/accounting/test_ledger.py", *_ACCOUNTANTS],
    "accounting/pld/": _ACCOUNTANTS[1:],
    "accounting/ledger.py": ["tests/accounting/test_ledger.py", "tests/erm/test_estimators.py"],
    "mechanisms/": _ACCOUNTANTS,
    "mechanisms/renyi.py": ["tests/mechanisms/test_renyi.py", *_ACCOUNTANTS],
    "mechanisms/subsampling.py": ["tests/mechanisms/test_truncated.py", *_ACCOUNTANTS],
    "noise/": ["tests/noise", "tests/training/test_step.py"],
    "noise/discrete.py": [
        "tests/noise",
        "tests/tickets/test_select.py",
        "tests/erm/test_noise.py",
    ],
    "clipping/": ["tests/clipping", "tests/training/test_variants.py"],
    "gradients/": _GRADIENTS,
    "sampling/": ["tests/sampling", "tests/training/test_variants.py"],
    "training/": ["tests/training"],
    "training/release.py": [
        "tests/training/test_step.py",
        "tests/training/test_variants.py",
        "tests/training/test_compiled.py",
    ],
    "training/compile.py": ["tests/training/test_compiled.py", "tests/training/test_replay.py"],
    "training/private_step.py": ["tests/training/test_step.py", "tests/training/test_variants.py", *_LOOP[:1]],
    "training/plan.py": [
        "tests/training/test_fit.py",
        "tests/training/test_variants.py",
        "tests/training/test_fit_resume.py",
        "tests/opacus/test_engine.py",
        "tests/training/test_wrapped.py",
        *_LOOP[2:3],
    ],
    "training/private_run.py": [
        "tests/training/test_fit.py",
        "tests/training/test_variants.py",
        "tests/training/test_fit_resume.py",
        "tests/opacus/test_engine.py",
        "tests/training/test_wrapped.py",
    ],
    "training/resume.py": ["tests/training/test_fit_resume.py"],
    "training/batch_session.py": _LOOP,
    "training/wrappers.py": _LOOP,
    "verification/": ["tests/gradients/test_model_probe.py", "tests/verification/test_catalogue.py"],
    "training/private_outputs.py": _LOOP,
    "training/batch_types.py": _LOOP,
    "training/loader.py": _LOOP,
    "opacus/": ["tests/opacus/test_engine.py", "tests/opacus/test_checkpoint.py"],
    "tradeoff/": ["tests/tradeoff", "tests/accounting/test_range_ends.py"],
    "budget/": ["tests/budget"],
    "tickets/": ["tests/tickets"],
    "erm/": _ERM,
    "../tacit_papers/input_perturbation/": _ERM,
    "data/": ["tests/data/test_arrays.py", "tests/data/test_table.py"],
    "runs/": [
        "tests/runs/test_train.py",
        "tests/runs/test_methods.py",
        "tests/runs/test_tasks.py",
        "tests/runs/test_resume.py",
    ],
}


def selection_of(file: str) -> list[str]:
    """Test files and folders for a file below the package.

    Example:
        >>> selection_of("training/resume.py")
        ['tests/training/test_fit_resume.py']
    """
    return list(_ROOMS[max((room for room in _ROOMS if file.startswith(room)), key=len)])


def first_of(name: str) -> list[str]:
    """Arguments of pytest for the test of the default suite that notices the bug `name` soonest; none if unknown."""
    return FIRST.get(name, "").split()


FIRST: dict[str, str] = tomllib.loads((Path(__file__).parent / "first.toml").read_text(encoding="utf-8"))
