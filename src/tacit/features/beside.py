"""`Beside` puts features of one record side by side; `Frozen` takes them from a network with public weights.

`features_from`: features made anew from their `spec`, for a model that is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit import check
from tacit.errors import TacitError, told
from tacit.features.base import PublicFeatures
from tacit.features.patches import PatchDictionary, SyntheticWhitening
from tacit.features.scattering import Scattering2d
from tacit.features.text import HashedText
from tacit.training import load_model
from tacit.verification import check_recordwise


class Beside(PublicFeatures):
    """The features of several maps, one after another.

    Args:
        parts: `PublicFeatures` of the same records.

    Raises:
        InvalidInput: a part is something else.

    Example:
        >>> from tacit.features import PatchDictionary, Scattering2d
        >>> Beside([Scattering2d((1, 8, 8)), PatchDictionary((1, 8, 8), patches=4)])(torch.rand(2, 64)).shape
        torch.Size([2, 356])
    """

    def __init__(self, parts: Sequence[PublicFeatures]):
        nn.Module.__init__(self)
        if not parts or not all(isinstance(part, PublicFeatures) for part in parts):
            raise check.fail("parts", "a list of features of tacit.features", [type(part).__name__ for part in parts])
        self.parts = parts if isinstance(parts, nn.ModuleList) else nn.ModuleList(parts)
        self.width = sum(part.width for part in parts)

    @property
    def _each(self) -> list[PublicFeatures]:
        return list(self.parts)  # type: ignore[arg-type]

    def _told(self) -> str:
        return " beside ".join(part._told() for part in self._each)

    def spec(self) -> dict[str, Any]:
        """Class, and the `spec` of each part."""
        return {"kind": "Beside", "parts": [part.spec() for part in self._each]}

    def forward(self, rows: Tensor) -> Tensor:
        """(n, width)."""
        return torch.cat([part(rows) for part in self._each], dim=1)


class Frozen(PublicFeatures):
    """Outputs of a network whose weights are public, such as one that was trained on public data, never changed here.

    The module runs in evaluation mode without gradients; its operations are typed, and one that mixes the records of a
    batch is refused. Where it returns an object, its `pooler_output` or the mean of its `last_hidden_state` is taken.

    Args:
        module: with public weights; it is declared, not checked, that no private record shaped them.
        example: one record, (1, ...) of the shape and type that the module takes.
        name: of the module, for the declaration.

    Raises:
        InvalidInput: an argument breaks its rule.
        MixesRecords: the module mixes records.

    Example:
        >>> Frozen(nn.Sequential(nn.Linear(3, 5), nn.ReLU()), torch.zeros(1, 3), "a small net").width
        5
    """

    def __init__(self, module: nn.Module, example: Tensor, name: str = "a frozen network"):
        nn.Module.__init__(self)
        check.instance("module", module, nn.Module, "a torch module")
        check.instance("example", example, Tensor, "one record as a tensor (1, ...)")
        self.module, self.example, self.name = module, example, name
        module.eval().requires_grad_(False)
        with torch.no_grad():
            self.width = int(self(example).shape[1])
        check_recordwise(self, torch.cat([example, example]))

    @classmethod
    def from_folder(cls, folder: str | Path, example: Tensor, module: nn.Module | None = None) -> Frozen:
        """A network of a local folder; nothing is downloaded, and no code of the folder runs.

        Args:
            folder: with model.safetensors: the state of `module`, or a Hugging Face model with config.json beside it.
            example: numbers of the tokens of one record, its pixels or other inputs, (1, ...).
            module: takes the weights; None for a Hugging Face model.

        Raises:
            InvalidInput: the folder holds no such model.
            TacitError: transformers is not installed.
        """
        folder = Path(folder)
        needed = ("model.safetensors",) if module is not None else ("model.safetensors", "config.json")
        if not all((folder / each).is_file() for each in needed):
            raise check.fail("folder", f"a local folder with {' and '.join(needed)}", str(folder))
        if module is not None:
            load_model(module, folder / needed[0])
            return cls(module, example, folder.name)
        try:
            from transformers import AutoModel
        except ImportError:
            raise TacitError("Frozen.from_folder needs transformers: pip install transformers") from None
        given: dict[str, Any] = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
        try:
            made = AutoModel.from_pretrained(str(folder), **given)
        except Exception as error:  # Configurations of others raise what they like.
            raise check.fail("folder", "a model that transformers can make", str(folder), told(error)) from error
        return cls(made, example, folder.name)

    def _told(self) -> str:
        return f"the weights of {self.name}"

    def spec(self) -> dict[str, Any]:
        """Class, name, and a digest of structure and weights."""
        digest = hashlib.sha256(repr(nn.Module.__repr__(self.module)).encode())
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return {"kind": "Frozen", "name": self.name, "weights": digest.hexdigest()}

    def forward(self, rows: Tensor) -> Tensor:
        """(n, outputs)."""
        self.module.eval()
        given = self.module(rows.reshape(-1, *self.example.shape[1:]).to(self.example.dtype))
        if not isinstance(given, Tensor):
            pooled = getattr(given, "pooler_output", None)
            given = pooled if pooled is not None else given.last_hidden_state.mean(dim=1)
        return given.flatten(1)


_KINDS: dict[str, type[PublicFeatures]] = {
    kind.__name__: kind for kind in (Beside, HashedText, PatchDictionary, Scattering2d, SyntheticWhitening)
}


def features_from(spec: Mapping[str, Any]) -> PublicFeatures:
    """The features that gave `spec`; what they compute first is read from a model's file or computed anew.

    Args:
        spec: of `PublicFeatures.spec`, from anybody.

    Raises:
        InvalidInput: it is none of features that have such a form.

    Example:
        >>> from tacit.features import Scattering2d
        >>> features_from(Scattering2d((3, 32, 32)).spec()).width
        15552
    """
    spec = dict(check.instance("features", spec, Mapping, "a table"))
    kind = _KINDS[check.choice("kind of features", spec.pop("kind", None), _KINDS)]
    for name in ("features", "parts"):
        if name in spec:
            inner = spec[name]
            spec[name] = [features_from(each) for each in inner] if isinstance(inner, list) else features_from(inner)
    try:
        return kind(**spec)
    except TypeError:
        raise check.fail("features", f"the parameters of {kind.__name__}", sorted(spec)) from None
