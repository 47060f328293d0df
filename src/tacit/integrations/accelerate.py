"""Private training in loops of Hugging Face accelerate (extra `accelerate`)."""

from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import BatchSampler, DataLoader

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.training.make_private import Private, make_private


def prepare(
    accelerator: Any, model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any], **privacy: Any
) -> Private:
    """`make_private` in place of `accelerator.prepare` for the three, whether or not that has been called before.

    The loop stays: `accelerator.backward(losses)` on one loss per record, then `private.optimizer.step()`. The model is
    moved to the accelerator's device; in bfloat16 call it inside of `accelerator.autocast()`. Other objects, such as a
    scheduler, may still go through `accelerator.prepare`, and so may the private parts.

    Args:
        accelerator: of one process, without gradient accumulation and without fp16.
        model: the original model, or what `accelerator.prepare` made of it.
        optimizer: of its trainable parameters, prepared or not.
        loader: prepared or not; only its data set, batch size and `collate_fn` are used.
        **privacy: of `make_private`: options, or clip_norm, noise_multiplier, epochs and so on.

    Raises:
        TrainingMisuse: the accelerator accumulates gradients, runs several processes or scales losses.
        InvalidInput: as `make_private`.
    """
    if accelerator.num_processes > 1:
        raise TrainingMisuse("accelerator must run one process; got several. Noise is added once, in one process.")
    if accelerator.gradient_accumulation_steps > 1:
        raise TrainingMisuse(
            "gradient_accumulation_steps must be 1 in private training; got more. Raise batch_size, and bound memory "
            "by max_physical_batch_size: noise is then added once for each batch."
        )
    if accelerator.mixed_precision not in ("no", "bf16"):
        raise check.fail(
            "mixed_precision", "'no' or 'bf16'", accelerator.mixed_precision, "bfloat16 needs no scaling of losses."
        )
    # The wrapper of accelerate keeps the optimizer that it was given.
    prepared = type(optimizer).__module__.startswith("accelerate.")
    original = optimizer.optimizer if prepared else optimizer  # type: ignore[attr-defined]
    module = accelerator.unwrap_model(model, keep_fp32_wrapper=False).to(accelerator.device)
    return make_private(module, original, _original_loader(loader), **privacy)


def _original_loader(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The loader before accelerate prepared it: same data set, batch size and collate_fn."""
    if not type(loader).__module__.startswith("accelerate."):
        return loader
    sampler = loader.batch_sampler
    size = sampler.batch_size if isinstance(sampler, BatchSampler) else getattr(loader, "total_batch_size", None)
    return DataLoader(loader.dataset, batch_size=size, collate_fn=loader.collate_fn)
