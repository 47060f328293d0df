"""`Config`: every setting of one training run, from a preset, a TOML file and overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.runs.methods import METHODS, Method
from tacit.runs.settings import known, setting

PRESETS = Path(__file__).parent / "presets"
MODELS = ("linear", "mlp", "convnet", "text", "recommender")
OPTIMIZERS = ("sgd", "adam")


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


@dataclass(frozen=True)
class Config:
    """Settings of `tacit train`; TOML keys, command-line flags and these fields have the same names.

    The keys of one method alone are fields of its `Method` and stand in a section of its name; `sections` holds
    those that were given, and `own` is the one of the chosen method.
    """

    name: str = "custom"
    dataset: str = setting("digits", 'A name that `tacit data` lists, or "table" with a [table] section.')
    method: str = setting("gradient", "How to train privately.")
    model: str = setting("linear", "linear, mlp, convnet, text or recommender.")
    hidden: tuple[int, ...] = setting((32,), "Width of an mlp's hidden layer.")
    count_padding: bool = setting(False, "Of model text: padding counts in the mean, as in the paper's code.")
    optimizer: str = setting("sgd", "sgd or adam.")
    learning_rate: float = setting(0.5, "Step size.")
    momentum: float = setting(0.0, "Momentum of sgd, in [0, 1).")
    batch_size: int = setting(128, "Expected size of a Poisson batch; sampling rate batch_size / n.")
    epochs: float = setting(20.0, "Expected passes over the data; round(epochs * n / batch_size) steps.")
    clip_norm: float = setting(1.0, "Bound on the norm of one record's gradient.")
    noise_multiplier: float | None = setting(None, "Noise std / clip_norm.")
    epsilon: float | None = setting(None, "Calibrate the noise to this epsilon instead, by pld at delta.")
    delta: float = setting(1e-5, "delta of the guarantee, below 1/n.")
    relation: str = setting("add_remove", "add_remove, replace_one or zero_out.")
    attacks: tuple[str, ...] = setting(("loss_threshold",), "Attack to run on the model.", flag="attack")
    confidence: float = setting(0.95, "Of the attacks' bounds, in (0, 1).")
    init_seed: int = setting(0, "Public seed of the initial weights, which are data independent.")
    unsafe_seed: int | None = setting(None, "Seed sampling and noise: reproducible, not private.")
    strict: bool = setting(False, "Values read from private data unpaid are errors, not warnings.")
    table: TableConfig | None = None
    sections: Mapping[str, Method] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from tacit.attacks import ATTACKS
        from tacit.relation import Relation
        from tacit.tradeoff import Epsilon

        check.choice("method", self.method, METHODS)
        check.choice("model", self.model, MODELS)
        check.choice("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("hidden", "attacks"):
            if not isinstance(getattr(self, name), tuple):
                raise check.fail(name, "a list", getattr(self, name))
        for attack in self.attacks:
            check.choice("attack", attack, ATTACKS)
        for name in ("strict", "count_padding"):
            if not isinstance(getattr(self, name), bool):
                raise check.fail(name, "true or false", getattr(self, name))
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

    @property
    def own(self) -> Method:
        """The method with its own settings: those of its section, or the defaults."""
        return self.sections.get(self.method) or METHODS[self.method]()

    def settings(self) -> dict[str, Any]:
        """Plain values for the card and the saved TOML, without anything unset and without the noise seed."""
        flat = {key: value for key, value in asdict(self).items() if value is not None and key != "unsafe_seed"}
        return flat | flat.pop("sections")


def preset_names() -> list[str]:
    """The presets that `tacit train` knows."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_config(source: str, overrides: Mapping[str, Any]) -> Config:
    """The settings of a preset or TOML file, each replaced where `overrides` has a value that is not None.

    A method's own settings are overridden by a table under its name. Overriding `epsilon` drops a preset's noise
    multiplier and the other way round.

    Raises `InvalidInput` for unknown presets and keys (with the nearest name), and for values that break a rule.
    """
    base = _from_toml(Path(source)) if source.endswith(".toml") else _preset(source)
    given = {key: value for key, value in overrides.items() if value is not None}
    if "epsilon" in given and "noise_multiplier" not in given:
        given["noise_multiplier"] = None
    elif "noise_multiplier" in given and "epsilon" not in given:
        given["epsilon"] = None
    sections = dict(base.sections)
    for name in given.keys() & METHODS.keys():
        values = {key: value for key, value in given.pop(name).items() if value is not None}
        if values:
            sections[name] = replace(sections.get(name) or METHODS[name](), **values)  # type: ignore[type-var]
    check.keys("the overrides", given, [each.name for each in fields(Config)])
    return replace(base, sections=sections, **given)


def _preset(name: str) -> Config:
    every = preset_names()
    if name not in every:
        hint = "A configuration file must end in .toml." if Path(name).exists() else ""
        check.choice("preset", name, every) if not hint else None
        raise check.fail("preset", "one of " + ", ".join(every), name, hint)
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
    """The settings in a table of plain values, a section for each method that has settings of its own."""
    flat = {key: value for key, value in table.items() if key not in METHODS}
    allowed = [each.name for each in fields(Config) if each.name != "sections"]
    check.keys("the configuration", table, [*allowed, *METHODS])
    values = known(Config, flat, where="the configuration")
    if "table" in values:
        section = _section("table", values["table"])
        values["table"] = TableConfig(**known(TableConfig, section, where="[table]", required=("path", "target")))
    values["sections"] = {
        name: kind(**known(kind, _section(name, table[name]), where=f"[{name}]"))
        for name, kind in METHODS.items()
        if name in table
    }
    return Config(**values)


def _section(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise check.fail(name, f"a [{name}] section", value)
    return value
