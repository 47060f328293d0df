"""Settings of the private training loop: the sections [clip], [sampling], [noise] and [validation].

`runs.builders` makes of each what `tacit.training.fit` takes; nothing heavy is imported here.

A setting: one dataclass field that is a TOML key, an argument of `--set` and a documented attribute at once.

Settings of the training methods: one frozen dataclass a method, the keys of its TOML section.

They are apart from `runs/methods/`, which trains, because the command line reads them without loading torch.

Settings of an own table: the [table] section of a configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from tacit import check
from tacit.data.declarations import Declarations
from tacit.data.delimited import TableFormat, table_file
from tacit.errors import InvalidInput, MissingData
from tacit.serialization import tuples


def setting(default: Any, help: str) -> Any:
    """A field with its `default` and its one line of `help`."""
    return field(default=default, metadata={"help": help})


def known(kind: type, given: Mapping[str, Any], *, where: str, required: Iterable[str] = ()) -> dict[str, Any]:
    """The values `given` for fields of `kind`, lists as tuples; raises `InvalidInput` with the nearest known name.

    Args:
        kind: a frozen dataclass of settings.
        given: values by name.
        where: the place that messages name.
        required: names that must be given.

    Raises:
        InvalidInput: a name is unknown (the message has the nearest known one) or a required one is missing.
    """
    check.keys(where, given, [each.name for each in fields(kind)])
    for name in sorted(set(required) - given.keys()):
        raise check.fail(name, f"given in {where}", None)
    return tuples(given)


SAMPLINGS = (
    *("poisson", "fixed_size", "shuffled", "truncated_poisson", "grouped_poisson", "random_allocation"),
    *("balls_and_bins", "balanced_iteration", "cyclic_poisson", "cyclic_allocation"),
)
NOISE_SHAPES = {
    "constant": (),
    "exponential": ("end",),
    "step": ("factor", "every"),
}


class _Section:
    """A section whose `type` decides which of its other settings apply."""

    def given(self) -> dict[str, Any]:
        """The settings that were given, without `type`."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "type"}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if value not in (None, {})}


@dataclass(frozen=True)
class ClipSettings(_Section):
    """The [clip] section: the kind of clipping, and the settings that only some kinds have."""

    type: str = setting("flat", "flat, per_layer, groups, automatic, adaptive or batch_mean.")
    bounds: Mapping[str, float] = field(default_factory=dict)
    quantile: float | None = setting(None, "Of adaptive: share of the records to be left unclipped.")
    learning_rate: float | None = setting(None, "Of adaptive: step size of the clipping norm.")
    count_noise: float | None = setting(None, "Of adaptive: noise of the count, in units of noise_multiplier.")
    stability: float | None = setting(None, "Of automatic: added to each gradient norm, so that small ones stay small.")


@dataclass(frozen=True)
class SamplingSettings(_Section):
    """The [sampling] section: how batches are drawn, and thus what one privacy unit is."""

    type: str = setting("poisson", f"{', '.join(SAMPLINGS[:-1])} or {SAMPLINGS[-1]}.")
    cap: int | None = setting(None, "Of truncated_poisson: the largest batch.")
    users: str | None = setting(None, "Of grouped_poisson: the feature that says which user a record belongs to.")
    groups: int | None = setting(None, "Of the cyclic ones: groups that take turns; the bands of the noise by default.")
    average: bool | None = setting(None, "Of grouped_poisson: the mean of a user's gradients instead of their sum.")

    def __post_init__(self) -> None:
        check.choice("type of [sampling]", self.type, SAMPLINGS)
        kinds: dict[str, tuple[str, ...]] = {"truncated_poisson": ("cap",), "grouped_poisson": ("users", "average")}
        kinds |= dict.fromkeys(("cyclic_poisson", "cyclic_allocation"), ("groups",))
        own = kinds.get(self.type, ())
        _check_settings(self, "sampling", own, required=set(own) - {"average", "groups"})


@dataclass(frozen=True)
class NoiseSettings(_Section):
    """The [noise] section: correlation over the steps, or the schedule of noise_multiplier from the first step on."""

    correlation: str = setting("independent", "independent, banded:B, banded:auto, blt:B, square_root or tree.")
    type: str = setting("constant", "constant, exponential or step.")
    end: float | None = setting(None, "Of exponential: the noise multiplier of the last step.")
    factor: float | None = setting(None, "Of step: factor by which the noise multiplier changes.")
    every: int | None = setting(None, "Of step: steps between two changes.")

    def __post_init__(self) -> None:
        check.text("correlation of [noise]", self.correlation)
        own = NOISE_SHAPES[check.choice("type of [noise]", self.type, NOISE_SHAPES)]
        _check_settings(self, "noise", own, required=set(own))

    def given(self) -> dict[str, Any]:
        """The settings of the schedule that were given."""
        return {name: value for name, value in super().given().items() if name != "correlation"}


@dataclass(frozen=True)
class ValidationSettings:
    """The [validation] section: records that no step trains on, to stop a run or to choose its weights by.

    Of method "gradient". The records set aside pay for what is told of them, in parallel with the training.
    """

    type: str = setting("none", "none, or private: a part of the training records.")
    epsilon: float | None = setting(None, "What is told of them costs them this; that of the run by default.")
    noise: float | None = setting(None, "Of noisy, instead of epsilon: standard deviation of each sum, in units.")
    share: float = setting(0.1, "Probability with which a record, or a user, is set aside, in (0, 1).")
    checkpoint: str = setting(
        "noisy", "noisy: a score with noise after each epoch; exponential or permute_and_flip: only a choice."
    )
    patience: int | None = setting(None, "Of noisy: epochs without a better score after which the run ends.")
    best: bool = setting(False, "Of noisy: end with the weights of the best epoch.")
    tolerance: float | None = setting(
        None, "Of a regression: the score is the share of predictions at most this far off."
    )
    error_bound: float | None = setting(
        None, "Of a regression: the score is the mean squared error, each one clipped to this."
    )

    def __post_init__(self) -> None:
        check.choice("type of [validation]", self.type, ("none", "private"))
        check.choice("checkpoint of [validation]", self.checkpoint, ("noisy", "exponential", "permute_and_flip"))
        check.probability("share of [validation]", self.share, open_low=True, open_high=True)
        for name in ("epsilon", "noise", "tolerance", "error_bound"):
            if getattr(self, name) is not None:
                check.positive(f"{name} of [validation]", getattr(self, name))
        for name, other in (("noise", "epsilon"), ("tolerance", "error_bound")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise check.fail(f"{name} of [validation]", f"left out beside {other}", getattr(self, name))
        if self.patience is not None:
            check.count("patience of [validation]", self.patience)
        if not isinstance(self.best, bool):
            raise check.fail("best of [validation]", "true or false", self.best)
        if self.checkpoint != "noisy" and (self.patience is not None or self.noise is not None or self.best):
            raise check.fail("checkpoint of [validation]", "noisy for patience, noise and best", self.checkpoint)

    @property
    def given(self) -> bool:
        """Whether records are set aside."""
        return self.type != "none"


NO_VALIDATION = ValidationSettings()
"""The [validation] section of a run that sets nothing aside."""

SHORT_FORMS = {"sampling": "type", "noise": "correlation", "validation": "type"}
"""The setting of a section that its name alone stands for: `noise = "banded:8"`, `--noise banded:8`."""

LOOP_SETTINGS: dict[str, type] = {
    "clip": ClipSettings,
    "sampling": SamplingSettings,
    "noise": NoiseSettings,
    "validation": ValidationSettings,
}
"""Section of the training loop by name."""


def _check_settings(section: Any, name: str, own: tuple[str, ...], *, required: set[str]) -> None:
    """Raise `InvalidInput` unless all of `required` and nothing besides `own` was given."""
    given = section.given()
    foreign = sorted(given.keys() - set(own))
    if foreign:
        raise InvalidInput(f"type of [{name}] must be one that has {foreign[0]}; got {section.type!r}.")
    for missing in sorted(required - given.keys()):
        raise check.fail(f"{missing} of [{name}]", f"given for {section.type}", None)


TICKET_MODES = ("paper", "T1", "T2", "T3", "T4")


@dataclass(frozen=True)
class GradientSettings:
    """The [gradient] section: empty, since the settings of the training loop are keys of the configuration itself."""


@dataclass(frozen=True)
class PerturbationSettings:
    """A section of `tacit.erm`: [input], [objective] or [output].

    Attributes:
        family: which of the three.
    """

    family: ClassVar[str]
    variant: str | None = setting(None, "A name of tacit.erm.METHODS for this method; its proven default if left out.")
    regularization: float | None = setting(None, "lambda >= 0; by default from n, the width and the target.")
    norm_bound: float | None = setting(None, "Public bound on a row's norm; by default what the bounds allow.")

    def __post_init__(self) -> None:
        if self.variant is not None:
            from tacit.erm import METHODS

            check.choice("variant", self.variant, METHODS[self.family])


class InputSettings(PerturbationSettings):
    """The [input] section: noise on the records themselves."""

    family = "input"


class ObjectiveSettings(PerturbationSettings):
    """The [objective] section: noise in the function that is minimised."""

    family = "objective"


class OutputSettings(PerturbationSettings):
    """The [output] section: noise on the minimiser."""

    family = "output"


@dataclass(frozen=True)
class TicketSettings:
    """The [ticket] section; epsilon, delta, epochs, batch_size, clip_norm and learning_rate are the run's own.

    Modes: "T1", a ticket of public origin; "T2", pruned from a privately trained dense network; "T3", the same, chosen
    on a private validation part; "T4", that with parallel composition; "paper", as published, which is only claimed.
    """

    mode: str = setting("T2", "paper, T1, T2, T3 or T4.")
    origin: str = setting("random", "Of T1: random, start_magnitude, synflow, or a public data set.")
    density: float = setting(0.1, "Of T1: share of weights kept; the largest allowed, for a public data set.")
    densities: tuple[float, ...] = setting((0.5, 0.25, 0.1, 0.05, 0.02), "Of T2 to T4: a density to choose from.")
    search_epochs: float = setting(10.0, "Of T2 to T4: epochs of the dense private network.")
    penalty: float = setting(0.0, "Accuracy, in [0, 1], that a ticket with all its weights loses in the choice.")
    validation_share: float = setting(0.2, "Of T3 and T4: probability that a record is kept for the choice.")
    selection: str = setting("exponential", "exponential or permute_and_flip.")
    rounds: int = setting(12, "Rounds of magnitude pruning (paper, and T1 with a data set).")
    iterations: int = setting(5000, "SGD steps of a round.")
    folder: str = setting("", "Folder of tickets that runs with the same start and data share; by default the run's.")

    def __post_init__(self) -> None:
        check.choice("mode of [ticket]", self.mode, TICKET_MODES)
        check.choice("selection of [ticket]", self.selection, ("exponential", "permute_and_flip"))
        check.count("rounds of [ticket]", self.rounds)
        check.count("iterations of [ticket]", self.iterations)
        check.probability("density of [ticket]", self.density, open_low=True)
        if not isinstance(self.densities, tuple) or not self.densities:
            raise check.fail("densities of [ticket]", "a list with at least one value", self.densities)


@dataclass(frozen=True)
class TreesSettings:
    """The [trees] section; epsilon, delta and relation are the run's own."""

    trees: int = setting(1600, "Number of trees.")
    depth: int | None = setting(None, "Questions of a tree, at most 12; it has 2^depth leaves. By default by a rule.")

    def __post_init__(self) -> None:
        check.count("trees of [trees]", self.trees)
        if self.depth is not None:
            check.count("depth of [trees]", self.depth, maximum=12)


@dataclass(frozen=True)
class VariationalSettings:
    """The [vi] section; the noise, batch_size, epochs, clip_norm and delta are the run's own."""

    family: str = setting("mean_field", "mean_field or full_rank.")
    prior_std: float = setting(1.0, "Prior standard deviation of every parameter, > 0.")
    noise_std: float = setting(1.0, "Standard deviation of a regression's target given the inputs, in its unit, > 0.")
    optimizer: str = setting("adam", "adam or adagrad.")
    learning_rate: float = setting(0.05, "Step size of the variational parameters.")

    def __post_init__(self) -> None:
        check.choice("family of [vi]", self.family, ("mean_field", "full_rank"))
        check.choice("optimizer of [vi]", self.optimizer, ("adam", "adagrad"))
        for name in ("prior_std", "noise_std", "learning_rate"):
            check.positive(f"{name} of [vi]", getattr(self, name))


@dataclass(frozen=True)
class StatementSettings:
    """The [statement] section: what the card and the statement of a run say of their subject.

    Where it is given, the statement is written at the end of the run.
    """

    dataset: str | None = setting(None, "Name of the data; that of the data set by default.")
    version: str | None = setting(None, "Of the data, such as a date or a digest.")
    facts: tuple[str, ...] = setting((), "What is public about the data, a list of sentences.")
    unit: str | None = setting(None, "What one record is, such as 'one patient'.")
    owner: str | None = setting(None, "Who answers for the data.")
    contact: str | None = setting(None, "How to reach them.")
    purpose: str | None = setting(None, "What the model is for.")
    date: str | None = setting(None, "Of the release, as YYYY-MM-DD; that of the end of the run by default.")

    def __post_init__(self) -> None:
        if self.given():
            self.about("data")

    def given(self) -> dict[str, Any]:
        """What was stated."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}

    def about(self, dataset: str) -> dict[str, Any]:
        """What was stated, with the date.

        Args:
            dataset: name of the data where none was stated.

        Raises:
            InvalidInput: a text or date is none that a statement can hold.
        """
        from tacit.statement import Subject
        from tacit.statement.subject import plain_name

        check.instance("facts of [statement]", self.facts, tuple, "a list of sentences")
        stated: dict[str, Any] = {"dataset": plain_name(dataset)} | self.given()
        return Subject(**stated).about()


STATEMENT_SETTINGS: dict[str, type] = {"statement": StatementSettings}
"""The section of the statement, by name."""

METHOD_SETTINGS: dict[str, type] = {
    "auto": GradientSettings,
    "gradient": GradientSettings,
    "input": InputSettings,
    "objective": ObjectiveSettings,
    "output": OutputSettings,
    "ticket": TicketSettings,
    "trees": TreesSettings,
    "vi": VariationalSettings,
}
"""Section of each method by the method's name; the method itself is `runs.methods.METHODS` under the same name."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(Declarations):
    """The [table] section: a CSV or Parquet file and what is declared about it; see `tacit.data.table`.

    Attributes:
        path: of the file, from the folder of the TOML file on.
        folder: of the TOML file.
        separator: as in `tacit.data.delimited.TableFormat`, like the four that follow.
    """

    path: str
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    header: bool = True
    names: tuple[str, ...] = ()
    folder: str = ""

    def __post_init__(self) -> None:
        check.text("path of [table]", self.path)
        check.text("target of [table]", self.target)
        super().__post_init__()
        _ = self.form

    @property
    def form(self) -> TableFormat:
        """How the file is written."""
        return TableFormat(**{each.name: getattr(self, each.name) for each in fields(TableFormat)})

    def file(self, data_dir: str | os.PathLike[str] | None) -> Path:
        """Where the file lies: `path` from `data_dir` on where one is given, else from the TOML file's folder on.

        Raises:
            MissingData: it is not there; the message names where it was looked for.
            InvalidInput: its name is not that of a table.
        """
        found = Path(self.folder if data_dir is None else data_dir, self.path)
        if not found.is_file():
            start = (
                "--data-dir" if data_dir is not None else "the TOML file" if self.folder else "the working directory"
            )
            hint = f"A relative path is one from {start} on; --data-dir names another folder."
            raise MissingData(
                f"path of [table] must be an existing CSV or Parquet file; got {self.path!r}, looked for at "
                f"{str(found.absolute())!r}. {hint}"
            )
        return table_file(found)


def table_config(section: Mapping[str, Any]) -> TableConfig:
    """The [table] section of plain values; dates of TOML become texts."""
    values = known(TableConfig, section, where="[table]", required=("path", "target"))
    return TableConfig(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value
