"""Checkpoints and model files: safetensors with plain values as JSON in the header, so that reading runs no code.

A file is written whole or not at all.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from tacit import check, serialization
from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.signing import Origin, origin_of, raise_count, signature_of
from tacit.standing import Standing
from tacit.tradeoff import Answer

# Version of the form of the header; raised when an older reader would misread it.
_FORMAT = 1
_KIND = "checkpoint"
_PLAIN, _LEDGERS = ("step", "steps", "stopped"), ("before", "ledger", "spent")  # fields by their form in the header


@dataclass(frozen=True)
class Checkpoint:
    """State of a private run after `step` of its planned `steps`.

    Attributes:
        step: number of steps taken.
        steps: number of planned steps.
        fingerprint: what must be equal for the run to resume: plan, model and optimizer in words.
        before: the ledger when the run began.
        ledger: the steps up to `step`.
        spent: upper bound on what ran by the time the file is read: `ledger` and every step until the next checkpoint
            is due. A process that was killed may have taken them, and its logs may have shown their results.
        stopped: why the run ended before its last planned step; empty while it has not.
        state: the states of the parts of the run, by part.
        id: of the file, from `tacit.signing.new_id`; empty where its versions are not counted.
        count: of this version of the file.
        origin: what the signature says of a checkpoint that was read.

    Example:
        >>> from tacit.accounting import Ledger
        >>> Checkpoint(5, 10, {}, Ledger(), Ledger(), Ledger(), stopped="", state={}).finished
        False
    """

    step: int
    steps: int
    fingerprint: Mapping[str, str]
    before: Ledger
    ledger: Ledger
    spent: Ledger
    stopped: str
    state: Mapping[str, Any]
    id: str = ""
    count: int = 0
    origin: Origin = Origin.OWN

    @property
    def finished(self) -> bool:
        """Whether no step is left to take."""
        return bool(self.stopped) or self.step >= self.steps

    def write(self, path: str | Path) -> None:
        """Write and sign the file; an interruption or a full disk leaves the previous one as it was."""
        tensors: dict[str, Tensor] = {}
        form = {name: getattr(self, name) for name in _PLAIN} | {"format": _FORMAT, "setting": dict(self.fingerprint)}
        form |= {name: getattr(self, name).spec() for name in _LEDGERS}
        text = json.dumps(form | {"state": packed(dict(self.state), tensors, "state")})
        digest = digest_of(text, tensors)
        signature = signature_of(_KIND, digest, id=self.id, count=self.count)
        header = {"tacit": text, "sha256": digest_of(text), "content": digest, "signature": json.dumps(signature)}
        serialization.write_bytes(path, save(tensors, header))
        if self.id:
            raise_count(self.id, self.count, path)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint in the file `path`, which `fit(..., checkpoint=path)` wrote.

    Raises:
        InvalidInput: the file is missing, truncated, edited or of another kind.

    Example:
        >>> import tempfile
        >>> from tacit.accounting import Ledger
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = Checkpoint(5, 10, {}, Ledger(), Ledger(), Ledger(), stopped="", state={"rate": 0.1})
        ...     saved.write(f"{folder}/run.safetensors")
        ...     read_checkpoint(f"{folder}/run.safetensors").state
        {'rate': 0.1}
    """
    header, tensors = read_safetensors("checkpoint", path)
    text = header.get("tacit")
    if text is None:
        raise check.fail("checkpoint", "one that fit(..., checkpoint=...) wrote", str(path), "It may be a model file.")
    if digest_of(text) != header.get("sha256"):
        raise InvalidInput(f"checkpoint must be as it was written; got {str(path)!r}, whose header was edited.")
    form = json.loads(text)
    if form.get("format") != _FORMAT:
        raise check.fail("checkpoint", f"of format {_FORMAT}", form.get("format"), "Another version of tacit wrote it.")
    ledgers = {name: Ledger.from_spec(form[name]) for name in _LEDGERS}
    signature, origin = _signature(Path(path), header, tensors)
    for ledger in ledgers.values():
        ledger.origin = Origin.OWN if signature else origin
    kept: dict[str, Any] = (
        {name: form[name] for name in _PLAIN} | ledgers | {"fingerprint": form["setting"], "origin": origin}
    )
    kept |= {name: signature[name] for name in ("id", "count") if name in signature}
    return Checkpoint(**kept, state=unpacked(form["state"], tensors))


def checkpoint_id(path: str | Path) -> str:
    """The identity that the checkpoint in the file `path` states; empty where it states none, or is none.

    Example:
        >>> checkpoint_id("nowhere.safetensors")
        ''
    """
    try:
        with safe_open(path, framework="pt") as file:
            signature = json.loads((file.metadata() or {}).get("signature", "null"))
    except (OSError, SafetensorError, ValueError):
        return ""
    return str(signature.get("id", "")) if isinstance(signature, dict) else ""


def _signature(path: Path, header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], Origin]:
    """The signature of this user's key over the whole content, empty where there is none, and what it says."""
    try:
        signature = json.loads(header.get("signature", "null"))
    except ValueError:
        signature = header.get("signature")
    content = header.get("content")
    digest = digest_of(header["tacit"], tensors)
    origin = origin_of(_KIND, digest, signature)
    if content not in (None, digest) or origin is Origin.EDITED:
        raise InvalidInput(f"checkpoint must be as it was written; got {str(path)!r}, whose content was edited.")
    if origin in (Origin.OWN, Origin.ROLLED_BACK) and isinstance(signature, dict):
        return signature, origin
    return {}, origin


def read_safetensors(name: str, path: str | Path, kind: str = "file") -> tuple[dict[str, str], dict[str, Tensor]]:
    """Header and tensors of the file that argument `name` gives; raises `InvalidInput` if missing or damaged."""
    if not Path(path).is_file():
        raise check.fail(name, f"a {kind} that exists", str(path))
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"{name} must be a complete safetensors file; got {str(path)!r}. {error}") from None


def digest_of(text: str, tensors: Mapping[str, Tensor] | None = None) -> str:
    """SHA-256 of a header's form, and of name, type, shape and bytes of every tensor where they are given."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors or {}):
        tensor = (tensors or {})[name].detach().cpu()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.numel():
            digest.update(tensor.flatten().clone().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def packed(value: object, tensors: dict[str, Tensor], path: str) -> Any:
    """JSON form of `value`; its tensors and arrays go to `tensors` under names that begin with `path`.

    A plain value is its own form; the form of any other is a table whose only key is its kind.

    Raises:
        InvalidInput: a value, named by its path, has no such form, such as a function or an object of another class.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Answer):
        return {"answer": [float(value), value.standing.value, *value.interval]}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.generic):
        return packed(value.item(), tensors, path)
    if isinstance(value, Tensor):
        return {"tensor": _add_tensor(value.detach().cpu().contiguous().clone(), tensors, path)}
    if isinstance(value, np.ndarray):
        return {"array": _add_tensor(torch.from_numpy(value.copy()), tensors, path)}
    if isinstance(value, list | tuple):
        items = [packed(item, tensors, f"{path}/{i}") for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        items = [[packed(key, tensors, path), packed(item, tensors, f"{path}/{key}")] for key, item in value.items()]
        # torch.optim.lr_scheduler.MultiStepLR counts its milestones.
        return {"counter" if isinstance(value, Counter) else "dict": items}
    raise check.fail(f"state at {path}", "made of plain values and tensors", type(value).__name__)


def unpacked(form: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value whose JSON form and tensors `packed` made."""
    if isinstance(form, list):
        return [unpacked(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    ((kind, content),) = form.items()
    if kind == "answer":
        number, standing, lower, upper = content
        return Answer(number, Standing(standing), lower, upper)
    if kind == "tuple":
        return tuple(unpacked(item, tensors) for item in content)
    if kind in ("dict", "counter"):
        items = {unpacked(key, tensors): unpacked(item, tensors) for key, item in content}
        return Counter(items) if kind == "counter" else items
    if kind in ("tensor", "array"):
        return tensors[content].clone() if kind == "tensor" else tensors[content].numpy().copy()
    raise InvalidInput(f"checkpoint must hold values of known kinds; got {kind!r}. It is of another version.")


def _add_tensor(tensor: Tensor, tensors: dict[str, Tensor], path: str) -> str:
    name = path if path not in tensors else f"{path}#{len(tensors)}"
    tensors[name] = tensor
    return name


def save_model(model: nn.Module, path: str | Path) -> None:
    """Write the model's parameters and buffers to `path`; an interruption leaves the previous file as it was.

    Example:
        >>> import tempfile, torch
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_model(torch.nn.Linear(2, 1), f"{folder}/model.safetensors")
        ...     sorted(file.name for file in Path(folder).iterdir())
        ['model.safetensors']
    """
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    serialization.write_bytes(path, save(tensors))


def load_model(model: nn.Module, path: str | Path) -> None:
    """Read what `save_model` wrote into `model`.

    Raises:
        InvalidInput: the file is missing, damaged or not of this model.

    Example:
        >>> import tempfile, torch
        >>> model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_model(model, f"{folder}/model.safetensors")
        ...     load_model(other, f"{folder}/model.safetensors")
        >>> torch.equal(model.weight, other.weight)
        True
    """
    _, tensors = read_safetensors("path", path, "model file")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InvalidInput(f"path must hold the parameters of this model; got {str(path)!r}. {error}") from None
