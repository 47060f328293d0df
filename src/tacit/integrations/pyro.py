"""Pyro models for private variational inference: `PyroModel(model, features=3).log_joint()`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Transform, biject_to

from tacit import check
from tacit.errors import InvalidInput
from tacit.variational import LogJoint

Model = Callable[[Tensor, Tensor], object]


@dataclass(frozen=True)
class Site:
    """A latent variable: its place in the flat vector and the transform from there to its support."""

    name: str
    prior: Any
    shape: torch.Size
    transform: Transform
    place: slice

    def value(self, w: Tensor) -> Tensor:
        """The variable in its support."""
        return torch.as_tensor(self.transform(w[self.place].view(self.shape)))

    def log_prior(self, w: Tensor) -> Tensor:
        """Log prior density of its part of the flat vector, change of variables included."""
        free = w[self.place].view(self.shape)
        value = self.transform(free)
        return self.prior.log_prob(value).sum() + self.transform.log_abs_det_jacobian(free, value).sum()


class PyroModel:
    """A Pyro model of `(inputs, targets)` as the log density of one record, with its own prior.

        def model(inputs, targets):
            w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
            with pyro.plate("records", len(inputs)):
                pyro.sample("y", dist.Bernoulli(logits=inputs @ w), obs=targets.float())

        likelihood = PyroModel(model, features=3).log_joint()

    Every latent variable is global, continuous and independent of the others a priori; observed sites lie in the plate
    of the records, so that each gives one log density a record. Scales, masks, subsampled plates, `pyro.param` and
    priors that depend on the inputs are refused: the density of a record would not be what the model says. The
    posterior is Gaussian over the unconstrained values; `values` brings a sample of it back.

    Args:
        model: a function of (batch, features) inputs and (batch,) targets.
        features: number of columns; the model is tried on made-up records of zeros.
        public: names of what the model reads besides its arguments and holds nothing private; see `LogJoint`.

    Raises:
        InvalidInput: pyro is not installed, or the model is of another kind.
    """

    def __init__(self, model: Model, *, features: int, public: tuple[str, ...] = ()):
        self._model, self._public = model, public
        inputs, targets = torch.zeros(2, check.count("features", features)), torch.zeros(2)
        sites, start = [], 0
        for name, node in _trace(model, {}, inputs, targets).items():
            if node["is_observed"]:
                continue
            prior: Distribution = node["fn"]
            if node["cond_indep_stack"] or not getattr(prior, "has_rsample", False):
                raise check.fail("model", "one of global, continuous latent variables", f"site {name!r}")
            transform = biject_to(prior.support)  # type: ignore[arg-type]
            shape = transform.inverse_shape(node["value"].shape)
            end = start + shape.numel()
            sites.append(Site(name, prior, shape, transform, slice(start, end)))
            start = end
        self._check_priors(sites, inputs, targets, "one of latent variables independent a priori")
        self._check_priors(sites, inputs + 1, targets + 1, "one whose priors are independent of the records")
        self.sites, self.size = tuple(sites), check.count("latent values of the model", start)
        _by_record(model, self.values(torch.zeros(start)), inputs, targets)

    def values(self, w: Tensor) -> dict[str, Tensor]:
        """The latent variables by name, for one flat vector of shape (size,)."""
        return {site.name: site.value(w) for site in self.sites}

    def log_joint(self, predictor: Callable[[Mapping[str, Tensor], Tensor], Tensor] | None = None) -> LogJoint:
        """The log density that `infer` takes.

        Args:
            predictor: (latent variables by name, inputs) -> predictions, where wanted.
        """
        return LogJoint(
            lambda w, inputs, targets: _by_record(self._model, self.values(w), inputs, targets),
            self.size,
            None if predictor is None else lambda w, inputs: predictor(self.values(w), inputs),
            log_prior=lambda w: torch.stack([site.log_prior(w) for site in self.sites]).sum(),
            public=self._public,
            sources=(self._model,),
        )

    def _check_priors(self, sites: list[Site], inputs: Tensor, targets: Tensor, rule: str) -> None:
        """A prior that depends on another latent variable, or on the records, changes when those are moved."""
        moved = {site.name: site.value(torch.ones(site.place.stop)) for site in sites}
        again = _trace(self._model, moved, inputs, targets)
        for site in sites:
            value = moved[site.name]
            if not torch.allclose(again[site.name]["fn"].log_prob(value), site.prior.log_prob(value)):
                raise check.fail("model", rule, f"site {site.name!r}")


def _trace(model: Model, values: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> dict[str, Any]:
    """The sample sites of one run with some latent variables given."""
    try:
        import pyro  # type: ignore[import-not-found]
        from pyro import poutine  # type: ignore[import-not-found]
    except ImportError:
        raise InvalidInput("pyro must be installed; got no such package. Use pip install 'tacit[pyro]'.") from None

    # Checks of arguments branch on values, which per-example gradients cannot do.
    with pyro.validation_enabled(False):
        nodes: Any = poutine.trace(poutine.condition(model, data=dict(values))).get_trace(inputs, targets).nodes
    found = {}
    for name, node in nodes.items():
        _check_node(name, node)
        if node["type"] == "sample" and not poutine.util.site_is_subsample(node):
            found[name] = node
    return found


def _check_node(name: str, node: Any) -> None:
    """Refuse what changes the density besides the distributions of the sites."""
    if node["type"] == "param":
        raise check.fail("model", "free of pyro.param", f"parameter {name!r}", "Use pyro.sample with a prior.")
    if node["type"] != "sample":
        return
    for frame in node["cond_indep_stack"]:
        full = getattr(frame, "full_size", None)
        if full is not None and full != frame.size:
            raise check.fail("model", "free of subsampled plates", f"plate {frame.name!r}", "Batches are drawn for it.")
    # A subsampled plate has the scale size / subsample_size.
    if node["infer"].get("is_auxiliary") or (torch.as_tensor(node["scale"]) != 1).any() or node.get("mask") is not None:
        hint = "Leave out poutine.scale, poutine.mask and subsample_size."
        raise check.fail("model", "free of scales and masks", f"site {name!r}", hint)


def _by_record(model: Model, values: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    """Log density of the observed sites of each record, (batch,)."""
    batch = torch.Size([len(targets)])
    total = torch.zeros(batch)
    nodes = _trace(model, values, inputs, targets)
    observed = {name: node for name, node in nodes.items() if node["is_observed"] and name not in values}
    check.that(observed, "model", "one that observes something of each record", "no observed site")
    for name, node in observed.items():
        logs = node["fn"].log_prob(node["value"])
        if logs.shape != batch:
            rule = f"of one log density a record, shape {tuple(batch)}"
            hint = "Put it into pyro.plate over the records, and give its distribution one batch axis."
            raise check.fail(f"site {name!r}", rule, tuple(logs.shape), hint)
        if not node["cond_indep_stack"]:
            hint = "Write \"with pyro.plate('records', len(inputs)):\" around it."
            raise check.fail(f"site {name!r}", "in the plate of the records", "a site outside any plate", hint)
        total = total + logs
    return total
