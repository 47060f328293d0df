"""`Config`: every setting of one training run, from a preset, a TOML file and overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.attacks import ATTACKS
from tacit.errors import InvalidInput
from tacit.relation import Relation
from tacit.tradeoff import Epsilon

PRESETS = Path(__file__).parent / "presets"
METHODS = ("gradient",)
MODELS = ("linear", "mlp", "convnet")
OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Config:
    """Settings of `tacit train`; TOML keys, command-line flags and these fields have the same names.

    Attributes:
        dataset: a name that `tacit data` lists, or "table" with a [table] section (see `TableConfig`).
        model: "linear", "mlp" or "convnet"; `hidden` are the widths of an mlp.
        optimizer: "sgd" (with `momentum`) or "adam".
        batch_size: expected size of a Poisson batch; the sampling rate is batch_size / n.
        clip_norm: bound on the norm of one record's gradient.
        noise_multiplier: std / clip_norm of the noise; or give `epsilon` and it is calibrated by `pld` at `delta`.
        epochs: passes over the data in expectation; steps = round(epochs * n / batch_size).
        relation: neighbouring relation of the guarantee.
        attacks: run on the trained model; names as in `tacit audit --attack`.
        confidence: of the attacks' bounds.
        init_seed: public seed of the initial weights, which are data independent.
        unsafe_seed: draws sampling and noise from a seeded stream: reproducible, and not private at all.
        strict: values read from private data without being paid for are an error instead of a warning.
    """

    name: str = "custom"
    dataset: str = "digits"
    method: str = "gradient"
    model: str = "linear"
    hidden: tuple[int, ...] = (32,)
    optimizer: str = "sgd"
    learning_rate: float = 0.5
    momentum: float = 0.0
    batch_size: int = 128
    epochs: float = 20.0
    clip_norm: float = 1.0
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    relation: str = "add_remove"
    attacks: tuple[str, ...] = ("loss_threshold",)
    confidence: float = 0.95
    init_seed: int = 0
    unsafe_seed: int | None = None
    strict: bool = False
    table: TableConfig | None = None

    def __post_init__(self) -> None:
        check.choice("method", self.method, METHODS)
        check.choice("model", self.model, MODELS)
        check.choice("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("hidden", "attacks"):
            if not isinstance(getattr(self, name), tuple):
                raise check.fail(name, "a list", getattr(self, name))
        for attack in self.attacks:
            check.choice("attack", attack, ATTACKS)
        if not isinstance(self.strict, bool):
            raise check.fail("strict", "true or false", self.strict)
        for width in self.hidden:
            check.count("hidden", width)
        for name in ("learning_rate", "epochs", "clip_norm"):
            check.positive(name, getattr(self, name))
        check.real("momentum", self.momentum, low=0.0, high=1.0, open_high=True)
        check.count("batch_size", self.batch_size)
        check.delta(self.delta)
        Relation.parse(self.relation)
        check.probability("confidence", self.confidence, open_low=True, open_high=True)
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise InvalidInput(
                f"noise_multiplier must be given, or epsilon instead; got noise_multiplier={self.noise_multiplier} and "
                f"epsilon={self.epsilon}. Give exactly one."
            )
        if self.noise_multiplier is not None:
            check.positive("noise_multiplier", self.noise_multiplier)
        if self.epsilon is not None:
            Epsilon(self.epsilon, self.delta)
        for name in ("init_seed", "unsafe_seed"):
            if getattr(self, name) is not None:
                check.count(name, getattr(self, name), minimum=0)
        if (self.dataset == "table") != (self.table is not None):
            raise InvalidInput(
                'dataset must be "table" exactly when a [table] section is given; got one without the other.'
            )

    def settings(self) -> dict[str, Any]:
        """Plain values for the card and the saved TOML, without anything unset and without the noise seed."""
        return {key: value for key, value in asdict(self).items() if value is not None and key != "unsafe_seed"}


@dataclass(frozen=True)
class TableConfig:
    """The [table] section: a CSV or Parquet file and what is declared about it; see `tacit.data.table`."""

    path: str
    target: str
    classes: tuple[str | int | float, ...] | None = None
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    test_fraction: float = 0.2
    seed: int = 0


def preset_names() -> list[str]:
    """The presets that `tacit train` knows."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_config(source: str, overrides: Mapping[str, Any]) -> Config:
    """The settings of a preset or TOML file, each replaced where `overrides` has a value that is not None.

    Overriding `epsilon` drops a preset's noise multiplier and the other way round.

    Raises `InvalidInput` for unknown presets and keys (with the nearest name), and for values that break a rule.
    """
    base = _from_toml(Path(source)) if source.endswith(".toml") else _preset(source)
    given = {key: value for key, value in overrides.items() if value is not None}
    if "epsilon" in given and "noise_multiplier" not in given:
        given["noise_multiplier"] = None
    elif "noise_multiplier" in given and "epsilon" not in given:
        given["epsilon"] = None
    return replace(base, **given)


def _preset(name: str) -> Config:
    known = preset_names()
    if name not in known:
        hint = "A configuration file must end in .toml." if Path(name).exists() else ""
        check.choice("preset", name, known) if not hint else None
        raise check.fail("preset", "one of " + ", ".join(known), name, hint)
    return _from_toml(PRESETS / f"{name}.toml")


def _from_toml(path: Path) -> Config:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise check.fail("configuration", "a file that exists", str(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"configuration must be a TOML file; got {str(path)!r}. {error}") from None
    return config_from_table({"name": path.stem} | table)


def config_from_table(table: Mapping[str, Any]) -> Config:
    """The settings in a table of plain values."""
    values = _known(Config, table, "the configuration")
    if "table" in values:
        if not isinstance(values["table"], Mapping):
            raise check.fail("table", "a [table] section", values["table"])
        values["table"] = TableConfig(**_known(TableConfig, values["table"], "[table]"))
    return Config(**values)


def _known(kind: type, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    check.keys(where, table, [each.name for each in fields(kind)])
    missing = {"path", "target"} - table.keys() if kind is TableConfig else set()
    for name in sorted(missing):
        raise check.fail(name, f"given in {where}", None)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
