"""Opacus's own tests against our face: python -m benchmarks.opacus_tests CHECKOUT [part of a test's name ...].

CHECKOUT is a folder with the sources of Opacus, such as a clone of its repository; nothing is fetched, and none of its
code is kept here. Its tests import hypothesis, opt_einsum and torchvision. They run with `PrivacyEngine`,
`BatchMemoryManager`, `ModuleValidator`, the schedulers, the DP layers and per-sample gradients of `tacit` in place of
its own. Tests that run none of them, or nothing at all, are left out. Printed: how many pass by file, and every test
that does not, with the reason where it is a known difference. The exit status is 1 if less than 90 % pass or are known.
"""

from __future__ import annotations

import importlib
import io
import sys
import unittest
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import Phase, settings
from tests.architectures.zoo import define_torchvision_operators
from torch import Tensor, nn

import tacit.opacus as face
from benchmarks.opacus_differences import DIFFERENCES
from tacit.clipping import FlatClip
from tacit.errors import TacitError, UnsupportedModel
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.engine import capture_gradients, without_gradients
from tacit.gradients.fallback import one_at_a_time
from tacit.gradients.inputs import PhysicalBatch, call

FILES = (
    "privacy_engine_test", "privacy_engine_validation_test", "batch_memory_manager_test", "module_validator_test",
    "schedulers.noise_scheduler_test", "schedulers.grad_clip_scheduler_test",
    "randomness_test.PrivacyEngineSecureModeTest",  # The other classes run the loader and optimizer of Opacus alone.
    "validators.batch_norm_test", "validators.gru_test", "validators.instance_norm_test", "validators.lstm_test",
    "validators.multihead_attention_test", "grad_samples.conv1d_test", "grad_samples.conv2d_test",
    "grad_samples.conv3d_test", "grad_samples.dp_multihead_attention_test", "grad_samples.dp_rnn_test",
    "grad_samples.embedding_bag_test", "grad_samples.embedding_test", "grad_samples.group_norm_test",
    "grad_samples.instance_norm1d_test", "grad_samples.instance_norm2d_test", "grad_samples.instance_norm3d_test",
    "grad_samples.layer_norm_test", "grad_samples.linear_test", "grad_samples.rms_norm_test",
    "grad_samples.sequence_bias_test",
)  # fmt: skip
_SHARE = 0.9
# Random arguments that each test of Opacus is tried with; its own number, 100, takes an hour.
_EXAMPLES = 5


class _WithGradSamples(nn.Module):
    """What `wrap_model` of Opacus returns: after backward, every parameter has `grad_sample`, made by our engine."""

    def __init__(self, model: nn.Module, *, batch_first: bool = True, loss_reduction: str = "mean", **_: Any):
        super().__init__()
        self._module, self._axis, self._mean = model, 0 if batch_first else 1, loss_reduction == "mean"

    def forward(self, *inputs: Any) -> Any:
        outputs = self._module(*inputs)
        if not isinstance(outputs, Tensor) or not all(isinstance(value, Tensor) for value in inputs):
            raise UnsupportedModel("inputs and outputs must be tensors; got others. Pad sequences to one length.")
        rows = tuple(value.movedim(self._axis, 0) if value.dim() > self._axis else value for value in inputs)
        moved = outputs.detach().movedim(self._axis, 0).requires_grad_()
        moved.register_hook(partial(self._keep, rows))
        return moved.movedim(0, self._axis)

    def _keep(self, rows: tuple[Tensor, ...], gradient: Tensor) -> None:
        found = per_sample_gradients(_AlongAxis(self._module, self._axis), rows, gradient)
        for name, parameter in self._module.named_parameters():
            if parameter.requires_grad:
                parameter.grad_sample = found[f"module.{name}"] * (len(gradient) if self._mean else 1)


class _AlongAxis(nn.Module):
    """A model whose records lie along `axis`, as one with records first."""

    def __init__(self, module: nn.Module, axis: int):
        super().__init__()
        self.module, self.axis = module, axis

    def forward(self, *inputs: Tensor) -> Tensor:
        if not self.axis:
            return self.module(*inputs)
        return self.module(*(value.transpose(0, 1) for value in inputs)).transpose(0, 1)


def _product(outputs: Tensor, gradient: Tensor) -> Tensor:
    return (outputs * gradient).flatten(1).sum(1)


def per_sample_gradients(model: nn.Module, inputs: tuple[Tensor, ...], gradient: Tensor) -> dict[str, Tensor]:
    """Per-sample gradients, name -> (batch, *shape), of the records whose outputs have `gradient`."""
    engine = ClippedSum(model, FlatClip(1e12))
    if not len(gradient):
        return {name: value.new_zeros(0, *value.shape) for name, value in engine.trainable.items()}
    batch = PhysicalBatch(_product, inputs, gradient)
    try:
        trace = engine.trace(_product, inputs, gradient)
    except UnsupportedModel:
        return one_at_a_time(model, batch)[0]
    with without_gradients(engine.trainable):
        found = capture_gradients(partial(call, model), engine.trainable, batch, trace).gradients
    zeros = {name: value.new_zeros(len(gradient), *value.shape) for name, value in engine.trainable.items()}
    return zeros | {name: one.dense().detach().reshape(zeros[name].shape) for name, one in found.items()}


def replace_by_ours(checkout: Path) -> None:
    """Import Opacus from `checkout`, and put our names in the place of its own."""
    settings.register_profile(
        "few",
        max_examples=_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],  # A failure is not repeated with smaller arguments.
    )
    settings.load_profile("few")
    define_torchvision_operators()
    torch.hub.download_url_to_file = _fetch_nothing
    sys.path.insert(0, str(checkout))
    errors = importlib.import_module("opacus.validators.errors")
    for name in ("UnsupportedModuleError", "ShouldReplaceModuleError", "IllegalModuleConfigurationError"):
        setattr(errors, name, UnsupportedModel)
    ours: dict[str, dict[str, Any]] = {
        "opacus": {"PrivacyEngine": face.PrivacyEngine},
        "opacus.utils.batch_memory_manager": {"BatchMemoryManager": face.BatchMemoryManager},
        "opacus.validators.module_validator": {"ModuleValidator": face.ModuleValidator},
        "opacus.schedulers": {name: getattr(face, name) for name in face.__all__ if name.endswith(("Noise", "Clip"))},
        "opacus.layers": {name: getattr(face, name) for name in face.__all__ if name.startswith("DP")},
        "opacus.layers.dp_multihead_attention": {"DPMultiheadAttention": face.DPMultiheadAttention},
        "opacus.utils.per_sample_gradients_utils": {
            "wrap_model": lambda model, grad_sample_mode, **named: _WithGradSamples(model, **named)
        },
    }
    for module, names in ours.items():
        for name, value in names.items():
            setattr(importlib.import_module(module), name, value)


def _fetch_nothing(url: str, *_: Any, **__: Any) -> None:
    raise OSError(f"nothing is fetched; got {url}")


class _Result(unittest.TestResult):
    """Status of every test: "passed", or the first line of what it raised."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        self.statuses[test.id()] = "passed"
        super().startTest(test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.statuses.pop(test.id(), None)

    def _failed(self, test: Any, err: Any) -> None:
        value = err[1]
        while isinstance(value, BaseExceptionGroup):
            value = value.exceptions[0]
        while value.__cause__ is not None and not isinstance(value, TacitError):
            value = value.__cause__
        self.statuses[test.id()] = f"{type(value).__name__}: {value}".split("\n")[0][:160]

    def addError(self, test: Any, err: Any) -> None:
        self._failed(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._failed(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._failed(test, err)


def run(parts: list[str]) -> dict[str, str]:
    """Status by test, of those whose name holds one of `parts`."""
    result = _Result()
    for file in FILES:
        # The loader would count a module that cannot be imported as one failure.
        importlib.import_module(f"opacus.tests.{file.partition('_test')[0]}_test")
        suite = unittest.defaultTestLoader.loadTestsFromName(f"opacus.tests.{file}")
        for test in _tests(suite):
            if _runs(test) and (not parts or any(part in test.id() for part in parts)):
                with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    warnings.simplefilter("ignore")
                    test.run(result)
                torch.use_deterministic_algorithms(False)
                print(f"{test.id()}: {result.statuses.get(test.id(), 'skipped there')}", file=sys.stderr, flush=True)
    return {name.removeprefix("opacus.tests."): status for name, status in result.statuses.items()}


def _tests(suite: Any) -> list[unittest.TestCase]:
    return [test for inner in suite for test in _tests(inner)] if isinstance(suite, unittest.TestSuite) else [suite]


def _runs(test: unittest.TestCase) -> bool:
    """Whether `test` does anything; a class that leaves out a test of its base overrides it by `pass`."""
    return getattr(test, test.id().split(".")[-1]).__code__.co_code != _does_nothing.__code__.co_code


def _does_nothing(_: object) -> None:
    pass


def difference(test: str) -> str:
    """Why `test` is not meant to pass here; empty if it is."""
    return next((reason for pattern, reason in DIFFERENCES.items() if fnmatch(test, pattern)), "")


def show(statuses: dict[str, str]) -> float:
    """Print the tables; the share of tests that pass or are known differences."""
    passed, known, all_of = Counter[str](), Counter[str](), Counter[str]()
    for test, status in statuses.items():
        file = test.split("_test.")[0]
        all_of[file] += 1
        passed[file] += status == "passed"
        known[file] += status != "passed" and bool(difference(test))
    print("| tests of Opacus | all | pass | known differences |\n|---|---|---|---|")
    for file, count in all_of.items():
        print(f"| {file} | {count} | {passed[file]} | {known[file]} |")
    total = [sum(counts.values()) for counts in (all_of, passed, known)]
    print(f"| all | {total[0]} | {total[1]} | {total[2]} |\n")
    reasons = Counter(difference(test) for test, status in statuses.items() if status != "passed")
    print("| known difference | tests |\n|---|---|")
    for reason, count in reasons.most_common():
        if reason:
            print(f"| {reason} | {count} |")
    for test, status in statuses.items():
        if status != "passed" and not difference(test):
            print(f"\nnot known: {test}: {status}")
    return (total[1] + total[2]) / max(1, total[0])


def main() -> int:
    """Run the tests of the checkout."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    replace_by_ours(Path(sys.argv[1]))
    return int(show(run(sys.argv[2:])) < _SHARE)


if __name__ == "__main__":
    sys.exit(main())
