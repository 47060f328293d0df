"""`tacit verify`: files of a run, a claim of somebody else, or somebody else's trainer, against what they say.

`tacit doctor`: whether a model can be trained privately, and what to change.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit import check
from tacit.accounting import Ledger
from tacit.accounting.claims import Verdict, claims_of, examine, states_claim
from tacit.cli.console import REFUTED, screen
from tacit.errors import Changed, InvalidInput, told
from tacit.reports import words
from tacit.runs.open_run import CONSISTENT, open_run, run_of
from tacit.runs.run_signature import SIGNATURE, SIGNED, in_run, origin_of_run
from tacit.serialization import json_text

if TYPE_CHECKING:
    from torch import Tensor, nn


def verify_command(
    path: Path | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    trainer: str | None = None,
    noise_multiplier: float = 1.1,
    sample_rate: float = 0.05,
    clip_norm: float = 1.0,
    relation: str = "add_remove",
    json: bool = False,
) -> None:
    """Say where RUN came from, whether the claim of SPEC or a card holds, or whether a trainer does what is claimed.

    Exit code 3 where a file was changed, a claim is refuted or a trainer does otherwise, 0 otherwise.

    Args:
        path ([RUN|SPEC]): Folder of a run, a ledger.json, SPEC.json or card.json.
        epsilon: The epsilon that is claimed for SPEC.
        delta: Its delta.
        json: Print JSON.

    Replay of a trainer:
        trainer (MODULE:FUNCTION): Replay this trainer on constructed neighbours instead. Its code runs: name only
            what you trust.
        noise_multiplier: With --trainer: the claimed noise multiplier.
        sample_rate: With --trainer: the claimed rate of Poisson sampling.
        clip_norm: With --trainer: the claimed clipping norm.
        relation: With --trainer: the claimed relation.
    """
    if (path is None) == (trainer is None):
        raise InvalidInput("SPEC must be given, or --trainer instead; got both or neither. Name one of them.")
    if trainer is not None:
        claimed = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "clip_norm": clip_norm}
        _verify_trainer(trainer, claimed, relation, json=json)
    elif path is not None:
        if path.is_dir() or (epsilon is None and delta is None and not states_claim(path)):
            _verify_files(path, json=json)
        else:
            _verify_claims(path, epsilon, delta, json=json)


def _verify_claims(path: Path, epsilon: float | None, delta: float | None, *, json: bool) -> None:
    run_of(path)  # A claim of a run that was changed is none.
    found = [examine(claim) for claim in claims_of(path, epsilon=epsilon, delta=delta)]
    # A card's numbers that are stated as no bounds are no claims; the verdict on it is of those that are.
    judged = [each for each in found if each.claim.is_bound]
    worst = min((each.verdict for each in judged), key=list(Verdict).index, default=Verdict.CONSISTENT)
    if json:
        print(json_text({"verdict": worst.value, "claims": [each.row() for each in found]}))
    else:
        for each in found:
            by = f" by {each.claim.accountant}" if each.claim.accountant else ""
            stated = f" ({each.claim.standing})" if each.claim.standing else ""
            print(f"epsilon {each.claim.epsilon:.6g} at delta {each.claim.delta:g}{by}{stated}: {each.verdict.value}")
            for sentence in (*each.refutations, *each.objections):
                print(f"  {sentence}")
        best = found[0]
        low = "nothing is" if best.lower is None else f"{words.downward(best.lower, 6)} is"
        print(f"Recomputed: {low} proven to leak, {words.upward(best.upper, 6)} is proven to be enough ({best.by}).")
        print("The claim's mechanisms are taken as stated: nothing here shows that they ran.")
    if worst is Verdict.REFUTED:
        raise typer.Exit(REFUTED)


def _verify_trainer(where: str, claimed: dict[str, float], relation: str, *, json: bool) -> None:
    from tacit.audit import replay_trainer
    from tacit.models import function_at

    found = replay_trainer(function_at(where), relation=relation, **claimed)
    if json:
        rows = [{"part": part, "says": says} for part, says in found.violations]
        print(json_text({"claim": claimed | {"relation": relation}, "violations": rows, "checks": found.checked}))
    else:
        for part, says in found.violations:
            print(f"{part}: {says}")
        told = "otherwise than claimed" if found.refuted else "nothing found that contradicts the claim"
        print(f"{found.checked} checks: {told}.")
        if not found.refuted:
            print("That is no proof: a trainer may behave otherwise on records that were not tried.")
    if found.refuted:
        raise typer.Exit(REFUTED)


def _verify_files(path: Path, *, json: bool) -> None:
    if path.is_dir() or in_run(path):
        _verify_run(path if path.is_dir() else path.parent, json=json)
        return
    ledger = Ledger.load(path)
    found: dict[str, object] = {"of": "run", "word": ""} if ledger.is_evidence else {"of": "spec", "word": "stated"}
    _print_files({path.name: ledger.origin.value}, found, json=json)
    if not json and ledger.is_evidence and (said := words.rounding_of(ledger)):
        print(said)
    if ledger.origin.refused:
        raise typer.Exit(REFUTED)


def _verify_run(folder: Path, *, json: bool) -> None:
    """Every file against its signature and the others, and every number of the card against its own ledger."""
    try:
        run = open_run(folder)
        numbers = run.numbers
    except Changed as error:
        seal = origin_of_run(folder)
        told = {name: seal.of(name).value for name in SIGNED if name in seal.files or name in seal.found}
        told = {SIGNATURE: seal.signature.value} | told | {error.file: error.why}
        _print_files(told, {"of": "spec", "word": "changed", "changed": error.file}, json=json)
        raise typer.Exit(REFUTED) from None
    run.mark_verified()
    word = run.word and CONSISTENT
    told = {SIGNATURE: run.seal.signature.value} | {name: run.seal.of(name).value for name in run.seal.found}
    told |= {name: origin.value for name, origin in run.later.items()}
    _print_files(told, {"of": "spec" if word else "run", "word": word, "numbers": numbers}, json=json)
    if any(run.seal.of(name).refused for name in run.seal.found):
        raise typer.Exit(REFUTED)  # of a run that was stopped
    if json:
        return
    if numbers:
        print(f"card.json: all {len(numbers)} guarantees are those that ledger.json gives; recomputed here.")
    if not word and run.state != "begun" and (said := words.rounding_of(run.ledger)):
        print(said)


def _print_files(told: dict[str, str], found: dict[str, object], *, json: bool) -> None:
    if json:
        print(json_text(found | {"files": [{"file": name, "is": says} for name, says in told.items()]}))
        return
    for name, says in told.items():
        print(check.visible(f"{name}: {says}"))
    meaning = {
        "": "Its numbers are those of a run: this user's key signed what the run wrote.",
        "stated": "Its numbers are stated: they are what the file says, and nothing shows that a run gave them.",
        "consistent": "Its numbers are consistent with its ledger; nothing shows that a run gave them.",
        "changed": "Nothing that it says counts.",
    }
    print(meaning[str(found["word"])])


def doctor_command(
    model: str, *, fix: bool = False, input_shape: str | None = None, vocabulary: int | None = None, json: bool = False
) -> None:
    """Find layers that mix the examples of a batch or keep private data, with the fix; exit code 2 if there are any.

    Args:
        model: The model, as package.module:Class or file.py:Class.
        fix: Print the repaired model and the code that repairs it.
        input_shape: Shape of one example, e.g. 3,32,32. With it, the model is also tested numerically.
        vocabulary: Size of the vocabulary, for inputs that are integers below it.
        json: Print JSON.
    """
    from tacit import gradients
    from tacit.models import module_at

    network = module_at(model)
    found = gradients.problems(network)
    changes: dict[str, str] = {}
    if fix and found:
        network, changes = gradients.fix(network)
    leaks, speed = [], None
    if input_shape is not None and not gradients.problems(network):
        inputs = _inputs(input_shape, vocabulary)
        leaks = gradients.leakage(network, inputs)
        speed = None if leaks else _speed(network, inputs)
    rows = [{"path": p.path, "layer": p.layer, "reason": p.reason, "fix": p.fix} for p in found]
    rows += [{"path": leak.path, "layer": leak.layer, "reason": str(leak), "fix": ""} for leak in leaks]
    healthy = not leaks and (fix or not found)
    if json:
        print(json_text({"problems": rows, "changes": changes, "slow": speed, "healthy": healthy}))
    else:
        _print(rows, changes, network if fix else None, speed)
    if not healthy:
        raise typer.Exit(2)


def _inputs(shape: str, vocabulary: int | None) -> Tensor:
    import torch

    sizes = [size.strip() for size in shape.split(",") if size.strip()]
    if not sizes or not all(size.isdecimal() and int(size) for size in sizes):
        raise check.fail("input_shape", "positive integers separated by commas", shape, "E.g. 3,32,32.")
    highest = None if vocabulary is None else check.count("vocabulary", vocabulary)
    try:
        whole = (4, *map(int, sizes))
        return torch.randn(whole) if highest is None else torch.randint(highest, whole)
    except (RuntimeError, TypeError, ValueError) as error:
        raise check.fail("input_shape", "one whose examples can be made", shape, told(error)) from error


def _speed(model: nn.Module, inputs: Tensor) -> str:
    """Why gradients take a slower way; empty when every operation is covered."""
    import torch

    from tacit.clipping import FlatClip
    from tacit.gradients import ClippedSum
    from tacit.gradients.neighbours import main_output

    def readout(outputs: object, _: Tensor) -> Tensor:
        found = main_output(outputs)
        return found.reshape(len(found), -1).square().sum(1)

    return ClippedSum(model.train(), FlatClip(1.0)).fallback_reason(readout, inputs, torch.zeros(len(inputs)))


def _print(rows: list[dict[str, str]], changes: dict[str, str], repaired: nn.Module | None, speed: str | None) -> None:
    from tacit.reports import plain_table

    console = screen()
    if rows:
        heads = {"path": "layer", "layer": "type", "reason": "problem", "fix": "fix"}
        told = [{head: row[name] for name, head in heads.items()} for row in rows]
        console.print(plain_table([row | {"layer": row["layer"] or "(the model)"} for row in told]))
    else:
        console.print("No layer mixes examples or keeps private data.")
    if speed is not None:
        console.print("Every operation is covered: the fast way." if not speed else f"Slower way: {speed}.")
    if repaired is not None and changes:
        console.print("\nThe repaired model:", str(repaired), "\nThe same in code:", *changes.values(), sep="\n")
        console.print("or  model, changes = tacit.gradients.fix(model)")
