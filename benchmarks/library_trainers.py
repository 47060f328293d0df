"""Steps of Opacus and JAX Privacy as black boxes for `tacit verify --trainer`; each needs its library.

    tacit verify --trainer benchmarks.library_trainers:opacus_parts --noise-multiplier 1.3 --sample-rate 0.08

Every function takes what `tacit.audit.replay_trainer` gives and returns what the optimizer received at every step.
"""

import numpy as np


def opacus_parts(records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size):
    """Opacus from its parts: `GradSampleModule`, `DPDataLoader` and `DPOptimizer` with the stated batch size."""
    import torch
    from opacus.data_loader import DPDataLoader
    from opacus.optimizers import DPOptimizer

    from opacus import GradSampleModule

    data = torch.utils.data.TensorDataset(torch.from_numpy(records))
    model = GradSampleModule(torch.nn.Linear(records.shape[1], 1, bias=False))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clip_norm,
        expected_batch_size=expected_batch_size,
    )
    return _opacus_steps(model, optimizer, DPDataLoader(data, sample_rate=sample_rate), steps)


def opacus_engine(records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size):
    """Opacus as its tutorial has it: `PrivacyEngine.make_private` takes rate and batch size from the loader.

    So the divisor is int(n q), not the stated one: it shows n (opacus#571), and scales all releases.
    """
    releases, _ = _engine(records, steps, clip_norm, noise_multiplier, sample_rate)
    return releases


def opacus_engine_sums(records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size):
    """`opacus_engine` with its divisor taken back: what is left does not come from int(n q)."""
    releases, divisor = _engine(records, steps, clip_norm, noise_multiplier, sample_rate)
    return releases * (divisor / expected_batch_size)


def _engine(records, steps, clip_norm, noise_multiplier, sample_rate):
    """Releases of an engine's optimizer, and its expected batch size."""
    import torch

    from opacus import PrivacyEngine

    data = torch.utils.data.TensorDataset(torch.from_numpy(records))
    model = torch.nn.Linear(records.shape[1], 1, bias=False)
    size = max(1, round(sample_rate * len(records)))
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=torch.utils.data.DataLoader(data, batch_size=size),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clip_norm,
    )
    return _opacus_steps(model, optimizer, loader, steps), optimizer.expected_batch_size


def _opacus_steps(model, optimizer, loader, steps):
    releases = []
    while len(releases) < steps:
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()  # the reduction that Opacus expects: it multiplies by the batch size
            optimizer.step()
            releases.append(next(model.parameters()).grad.detach().numpy().ravel().copy())
            if len(releases) == steps:
                break
    return np.array(releases)


def jax_privacy_parts(records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size):
    """JAX Privacy from its parts: `clipped_grad`, `CyclicPoissonSampling` with one group, `gaussian_privatizer`."""
    import jax
    import jax.numpy as jnp
    from jax_privacy import batch_selection, clipping, noise_addition

    gradient = jax.jit(
        clipping.clipped_grad(
            lambda weights, record: jnp.sum(record * weights),
            l2_clip_norm=clip_norm,
            normalize_by=expected_batch_size,
            keep_batch_dim=False,
        )
    )
    weights = jnp.zeros(records.shape[1])
    privatizer = noise_addition.gaussian_privatizer(
        stddev=noise_multiplier * gradient_sensitivity(clip_norm, expected_batch_size),
        prng_key=int(np.random.default_rng().integers(2**31)),
    )
    state, releases = privatizer.init(weights), []
    sampling = batch_selection.CyclicPoissonSampling(sampling_prob=sample_rate, iterations=steps)
    for chosen in sampling.batch_iterator(len(records)):
        total, state = privatizer.update(gradient(weights, _padded(records[chosen])), state)
        releases.append(np.asarray(total))
    return np.array(releases)


def gradient_sensitivity(clip_norm, expected_batch_size):
    """How far one record moves the sum that is divided by the expected batch size."""
    return clip_norm / expected_batch_size


def _padded(batch):
    """The batch with blank records up to a power of two, so that few shapes are compiled."""
    size = 1 << max(0, len(batch) - 1).bit_length()
    return np.concatenate([batch, np.zeros((size - len(batch), batch.shape[1]), batch.dtype)])


LIBRARIES = {
    "opacus": (opacus_parts, opacus_engine, opacus_engine_sums),
    "jax-privacy": (jax_privacy_parts,),
}
"""Name of a package -> its trainers."""
