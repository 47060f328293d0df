"""`tacit train`: from data to a privacy card, one command for every method.

`tacit tune`: private selection over settings, its whole cost stated.

Settings on the command line: flags for the common ones, `--set KEY=VALUE` for all.
"""

from __future__ import annotations

import inspect
import os
import sys
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from tacit import check
from tacit.cli.console import described, interruptible, progress_bars, screen
from tacit.runs.config import SECTIONS, Config
from tacit.runs.settings import SHORT_FORMS
from tacit.serialization import json_text, toml_table, tuples

if TYPE_CHECKING:
    from tacit.tuning import Tuned

FLAGS = {
    "Data and model": ("dataset", "method", "model", "hidden"),
    "Optimizer": ("learning_rate", "batch_size", "epochs"),
    "Privacy": ("clip_norm", "noise_multiplier", "epsilon", "delta", "relation", "unsafe_seed", "strict"),
    "Attacks": ("attacks",),
    "Sections": ("sampling", "noise", "validation"),
}
"""The settings with a flag of their own, by group of the help; a section stands for the setting in `SHORT_FORMS`."""


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """`command(..., overrides=...)` with the flags of `FLAGS` in place of the argument `overrides`.

    `overrides` holds those that were given, by the names of `FLAGS`.
    """
    flags = dict(_flags())
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "overrides"]

    @wraps(command)
    def parsed(**given: Any) -> None:
        flat = {name: given.pop(parameter.name) for name, parameter in flags.items()}
        command(**given, overrides={name: value for name, value in tuples(flat).items() if value not in (None, ())})

    parsed.__signature__ = signature.replace(parameters=[*own, *flags.values()])  # type: ignore[attr-defined]
    return parsed


def all_settings() -> str:
    """Every setting with its default and its sentence, a line or two each, by section."""
    lines = []
    for section, kind in [("", Config), *SECTIONS.items()]:
        told = settings_of(kind)
        lines += [f"\n[{section}]"] if section and told else []
        for each, text in told:
            lines += [f"{each.name}{_default(each.default)}", f"    {text}"]
    return "\n".join(lines)


def settings_of(kind: type) -> list[tuple[Field[Any], str]]:
    """The settings of a section that its docstring, or that of its base, describes, each with its sentence."""
    rows = {name: row[2] for base in kind.__mro__[:-1] for name, row in described(base.__doc__)[1].items()}
    return [(each, rows[each.name]) for each in fields(kind) if each.name in rows]


def _flags() -> Iterator[tuple[str, inspect.Parameter]]:
    """(key of the overrides, parameter) of every flag."""
    for group, names in FLAGS.items():
        for name in names:
            kind, key = (SECTIONS[name], SHORT_FORMS[name]) if name in SECTIONS else (Config, name)
            ((each, text),) = [found for found in settings_of(kind) if found[0].name == key]
            flag, repeated = _type(get_type_hints(kind)[key])
            text = text.rstrip(".") + (" (repeatable)." if repeated else ".") + _default(each.default)
            hint: Any = Annotated[flag | None, typer.Option(help=text, rich_help_panel=group)]
            word = "attack" if name == "attacks" else name
            yield name, inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def with_set(flat: Mapping[str, Any], texts: list[str]) -> dict[str, Any]:
    """What `read_config` takes: the flags that were given and the settings of `--set`, sections as tables."""
    overrides: dict[str, Any] = {
        name: {SHORT_FORMS[name]: value} if name in SECTIONS else value for name, value in flat.items()
    }
    for text in texts:
        key, found, value = text.partition("=")
        check.that(found, "set", "KEY=VALUE, such as clip.type=adaptive", text)
        key = key.strip()
        section, _, name = (f"{key}.{SHORT_FORMS[key]}" if key in SHORT_FORMS else key).rpartition(".")
        table = overrides.setdefault(section, {}) if section else overrides
        check.that(isinstance(table, dict) and name not in table, key, "given once", value)
        table[name] = _value(_hint(section, name), value.strip())
    return overrides


def _hint(section: str, name: str) -> Any:
    kind = SECTIONS.get(section) if section else Config
    return None if kind is None else get_type_hints(kind).get(name)


def _value(hint: Any, text: str) -> Any:
    """A value as in TOML; text where the setting is one, or where it is nothing else."""
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = table.pop("value")
    return text if table or (hint in (str, str | None) and not isinstance(value, str)) else value


def _default(value: Any) -> str:
    """The default of a setting in words, which a preset or a TOML file replaces; empty where there is none."""
    if value is None or value == "" or value is MISSING:
        return ""
    if isinstance(value, bool):
        return f" [default: {'yes' if value else 'no'}]"
    shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
    return f" [default: {shown}]"


def _type(hint: Any) -> tuple[Any, bool]:
    """(type of the flag, whether it may be given several times) for the type of a field."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) is tuple:
        return list[get_args(hint)[0]], True
    return hint, False


@with_flags
def train_command(
    preset: str | None = None,
    *,
    resume: Path | None = None,
    data_dir: Path | None = None,
    out: Path | None = None,
    budget: str | None = None,
    no_budget: bool = False,
    recipe: str = "auto",
    trust_code: bool = False,
    show_values: bool = False,
    verbose: bool = False,
    json: bool = False,
    set: list[str] | None = None,
    settings: bool = False,
    overrides: Mapping[str, Any],
) -> None:
    """Train privately, account, attack and write card.html, card.json, ledger.json and model.safetensors.

    Args:
        preset: A preset (digits, mnist, ...), CONFIG.toml or folder of images by class; none with --resume.
        resume (RUN): Resume the stopped run in this folder.
        out: Folder of the run; runs/NAME-DATE-TIME by default.
        budget: Data set of the registry that is charged; by default the one with these records.
        recipe: auto (the best one known where only --epsilon is given), best, or paper: the preset's own.
        trust_code: With --resume: run the model's own code that RUN names.
        verbose: Print every accountant and attack, too.
        json: Print the card as JSON.
        data_dir: Folder of the data files.
        no_budget: Charge no registry: across runs the number is only claimed.
        show_values: Error messages may quote values of the data.
        set (KEY=VALUE): Any setting, as clip.type=adaptive or statement.owner=NAME (repeatable).
        settings: List every setting.
        overrides: The settings that have a flag of their own.
    """
    from tacit import runs
    from tacit.cli.budget import charged_name, total_sentence
    from tacit.reports import card_table
    from tacit.runs.open_run import open_run

    if settings:
        print(all_settings())
        return
    overrides = with_set(overrides, set or [])
    hint = "Name a preset such as digits, a CONFIG.toml, or a stopped run by --resume."
    check.that(preset is not None or resume is not None, "PRESET", "given unless --resume is", None, hint)
    given = {**overrides, "budget": budget, "no_budget": no_budget or None, "PRESET": preset, "out": out}
    seed = None if resume is None else _only_a_seed(given)
    with interruptible(), progress_bars() as on_progress:
        if int(os.environ.get("RANK") or 0):  # Of torchrun: rank 0 does the rest.
            config = (
                runs.recipe_config(preset or "", overrides, recipe)
                if resume is None
                else open_run(resume).config({"unsafe_seed": seed}, trust_code=trust_code)
            )
            runs.join(config)
            runs.follow(config, data_dir=data_dir, resumed=resume)
            runs.leave()
            return
        if resume is None:
            config, name = runs.recipe_config(preset or "", overrides, recipe), charged_name(budget, no_budget)
            run = runs.train(config, data_dir=data_dir, out=out, budget=name, on_progress=on_progress)
        else:
            given = {"unsafe_seed": seed, "trust_code": trust_code, "on_progress": on_progress}
            run = runs.resume(resume, data_dir=data_dir, **given)
    runs.leave()
    if json:
        print(json_text(card_table(run.card)))
        return
    from tacit.reports import account_table, audit_table
    from tacit.reports.card import summary
    from tacit.reports.words import OUTSIDE
    from tacit.runs.run_signature import STATEMENT

    console = screen()
    if verbose:
        console.print(account_table(run.account, run.card.ledger))
        console.print(audit_table(run.audits))
        console.print(OUTSIDE, style="dim")
    for line in (*summary(run.card), total_sentence(run.budget)):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    more = "" if verbose else "; tacit account RUN lists every accountant, and --verbose prints them at the end"
    signed = run.folder / STATEMENT
    told = f"statement: {signed}" if signed.is_file() else "tacit statement RUN signs a statement"
    console.print(f"Card: {run.folder / 'card.html'} ({told}{more})", soft_wrap=True)


def plan_command(
    preset: str | None = None,
    *,
    parameters: int | None = None,
    records: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    row_norm: float | None = None,
    data_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Recommend batch size, steps, learning rate and clip norm by a rule of public numbers; nothing is trained.

    Args:
        preset: A preset or CONFIG.toml, whose data and model are read.
        parameters: Without a preset: trainable parameters of the model.
        records: Without a preset: number of records.
        epsilon: Target epsilon; of a preset, that of the preset.
        delta: Its delta; of a preset, that of the preset.
        row_norm: For a linear model: the public norm of its rows; else it is a network.
        data_dir: Folder of the data files.
        json: Print JSON.
    """
    from tacit.training import recommend

    model: Any = parameters
    if preset is not None:
        from tacit.runs import read_config
        from tacit.runs.builders import dataset_of, network_of, sampling_of

        check.that(parameters is None and records is None, "PRESET", "left out with --parameters and --records", preset)
        config = read_config(preset, {"epsilon": epsilon, "delta": delta})
        dataset, epsilon, delta = dataset_of(config, data_dir), config.epsilon, config.delta
        model, records = network_of(config, dataset), sampling_of(config, dataset).units(len(dataset.y_train))
    given: dict[str, Any] = {"records": records, "epsilon": epsilon, "delta": delta}
    for name, value in {"parameters": model, **given}.items():
        check.that(value is not None, name, "given", None, "Or name a preset that has it.")
    found = recommend(model, row_norm=row_norm, **given)
    print(json_text(found.row()) if json else found)


def _only_a_seed(given: Mapping[str, Any]) -> int | None:
    """The seed of a seeded run to resume; any other setting is the stored one."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            key, value = next(iter(value.items()))
            name = f"{name}.{key}"
        if value is not None and name != "unsafe_seed":
            raise check.fail(name, "left out with --resume", value, "The run keeps its settings.")
    return given.get("unsafe_seed")


_BEGUN = (
    "Tuning {search}: the noise of a trial is solved from the total before the first of them. How many trials there "
    "are, and how far each is, is not shown."
)


def tune_command(
    preset: str | None = None,
    *,
    resume: Path | None = None,
    trials: float = 20,
    epsilon: float = 3.0,
    delta: float | None = None,
    law: str = "logarithmic",
    selection: str = "random_trials",
    space: Path | None = None,
    validation: str = "private",
    validation_share: float = 0.1,
    epochs: float | None = None,
    unsafe_seed: int | None = None,
    data_dir: Path | None = None,
    out: Path | None = None,
    trust_code: bool = False,
    budget: str | None = None,
    no_budget: bool = False,
    show_values: bool = False,
    json: bool = False,
) -> None:
    """Train a preset with random settings a random number of times; keep the best, and nothing of the others.

    Args:
        preset: A preset (adult, har, mnist, ...) or CONFIG.toml; none with --resume.
        resume (RUN): Resume the stopped search in this folder.
        trials: Mean number of trials, above 1; the number itself stays secret.
        epsilon (--epsilon, --total-epsilon): Of everything together.
        delta: Of everything together; the preset's by default.
        law: logarithmic, geometric, poisson, or a shape in (-1, 1].
        selection: random_trials; exponential or permute_and_flip: exactly so many trials, and a choice.
        space: TOML file with a list of values for each setting to search.
        validation: private: a part of the training records; public: the test records, declared public.
        validation_share: Probability with which a record is set aside.
        epochs: Expected passes of each trial.
        unsafe_seed: Repeatable search, not private.
        out: Folder of the winner's run.
        trust_code: With --resume: run the model's own code that RUN names.
        budget: Data set of the registry that the search is charged to.
        data_dir: Folder of the data files.
        no_budget: Charge no registry: across runs the number is only claimed.
        show_values: Error messages may quote values of the data.
        json: Print JSON.
    """
    print(_BEGUN.format(search=resume or preset), file=sys.stderr, flush=True)  # Before slow imports.
    from tacit.cli.budget import charged_name
    from tacit.runs import read_config
    from tacit.tradeoff import Epsilon
    from tacit.tuning import resume_tuning, tune

    check.that((preset is None) != (resume is None), "preset", "given, or --resume RUN", preset)
    with interruptible(), progress_bars() as on_progress:
        given: dict[str, Any] = {"data_dir": data_dir, "on_progress": on_progress}
        if resume is not None:
            tuned = resume_tuning(resume, unsafe_seed=unsafe_seed, trust_code=trust_code, **given)
        else:
            assert preset is not None
            given["target"] = Epsilon(epsilon, read_config(preset, {}).delta if delta is None else delta)
            given |= {"trials": trials, "law": float(law) if check.is_number(law) else law, "selection": selection}
            given |= {"validation": validation, "validation_share": validation_share, "out": out}
            given |= {"overrides": {"epochs": epochs, "unsafe_seed": unsafe_seed}}
            lists = None if space is None else toml_table("space", space)
            tuned = tune(preset, lists, budget=charged_name(budget, no_budget), **given)
    if json:
        print(json_text(_tuned_table(tuned)))
    else:
        _show_tuned(tuned)


def _tuned_table(tuned: Tuned) -> dict[str, Any]:
    card, search = tuned.run.card, tuned.search
    total = tuned.tradeoff.epsilon(tuned.target.delta)
    return {
        "settings": dict(tuned.settings),
        "test": card.metrics["test"],
        "epsilon": float(total),
        "epsilon_lower": total.interval[0],
        "delta": tuned.target.delta,
        "standing": tuned.tradeoff.standing.value,
        "scope": card.ledger.scope,
        "search": search.told,
        "noise_multiplier": search.noise_multiplier,
        "folder": str(tuned.run.folder),
    }


def _show_tuned(tuned: Tuned) -> None:
    from tacit.cli.budget import total_sentence
    from tacit.reports import account_table
    from tacit.standing import downward, upward

    console, card, search, at = screen(), tuned.run.card, tuned.search, tuned.target.delta
    total = tuned.tradeoff.epsilon(at)
    console.print(f"Winner: {', '.join(f'{name} {value}' for name, value in tuned.settings.items())}")
    found, told = card.metrics["test"], card.held_out
    outside = " (outside of the guarantee)" if told.get("test") == "exact" else ""
    console.print(f"{card.dataset}: test {'not measured' if found is None else f'{found:.4f}{outside}'}")
    console.print(told.get("says", ""), soft_wrap=True)
    console.print(
        f"The whole search: epsilon {upward(float(total), 5)} at delta {at:g}, {tuned.tradeoff.standing.value}; an "
        f"attack reaches {downward(total.interval[0], 5)}. Noise multiplier {upward(search.noise_multiplier, 5)} in "
        "each trial."
    )
    console.print(f"Trials: {search}")
    console.print(account_table(tuned.run.account, card.ledger))
    console.print(total_sentence(tuned.run.budget), soft_wrap=True)
    console.print(f"Card: {tuned.run.folder / 'card.html'}", soft_wrap=True)
