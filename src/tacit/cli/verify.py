"""`tacit verify`: files of a run, a claim of somebody else, or somebody else's trainer, against what they say."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import InvalidInput
from tacit.serialization import json_text

REFUTED = 3
"""Exit code of a refuted claim, and of files that were changed."""
TRAINER = "Replay of a trainer"


def command(
    path: Annotated[
        Path | None,
        typer.Argument(help="Folder of a run, a ledger.json, SPEC.json or card.json.", metavar="[RUN|SPEC]"),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon that is claimed for SPEC.")] = None,
    delta: Annotated[float | None, typer.Option(help="Its delta.")] = None,
    trainer: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TRAINER,
            help="Replay this trainer on constructed neighbours instead. Its code runs: name only what you trust.",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    noise_multiplier: Annotated[
        float, typer.Option(rich_help_panel=TRAINER, help="With --trainer: the claimed noise multiplier.")
    ] = 1.1,
    sample_rate: Annotated[
        float, typer.Option(rich_help_panel=TRAINER, help="With --trainer: the claimed rate of Poisson sampling.")
    ] = 0.05,
    clip_norm: Annotated[
        float, typer.Option(rich_help_panel=TRAINER, help="With --trainer: the claimed clipping norm.")
    ] = 1.0,
    relation: Annotated[
        str, typer.Option(rich_help_panel=TRAINER, help="With --trainer: the claimed relation.")
    ] = "add_remove",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where RUN came from, whether the claim of SPEC or a card holds, or whether a trainer does what is claimed.

    Exit code 3 where a file was changed, a claim is refuted or a trainer does otherwise, 0 otherwise.
    """
    if (path is None) == (trainer is None):
        raise InvalidInput("SPEC must be given, or --trainer instead; got both or neither. Name one of them.")
    if trainer is not None:
        claimed = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "clip_norm": clip_norm}
        _verify_trainer(trainer, claimed, relation, json=json)
    elif path is not None:
        if path.is_dir():
            _verify_files(path, json=json)
        else:
            _verify_spec(path, epsilon, delta, json=json)


def _verify_spec(path: Path, epsilon: float | None, delta: float | None, *, json: bool) -> None:
    from tacit.accounting.claims import Verdict, claims_of, examine, states_claim
    from tacit.standing import downward, upward

    if epsilon is None and delta is None and not states_claim(path):
        _verify_files(path, json=json)
        return
    found = [examine(claim) for claim in claims_of(path, epsilon=epsilon, delta=delta)]
    # A card's numbers that are stated as no bounds are no claims; the verdict on it is of those that are.
    judged = [each for each in found if each.claim.standing in ("", "proven", "conditional")]
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
        low = "nothing is" if best.lower is None else f"{downward(best.lower, 6)} is"
        print(f"Recomputed: {low} proven to leak, {upward(best.upper, 6)} is proven to be enough ({best.by}).")
        print("The claim's mechanisms are taken as stated: nothing here shows that they ran.")
    if worst is Verdict.REFUTED:
        raise typer.Exit(REFUTED)


def _verify_trainer(where: str, claimed: dict[str, float], relation: str, *, json: bool) -> None:
    from tacit.audit import replay_trainer
    from tacit.models.named import function_at

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
    rows, of = _of_run(path) if path.is_dir() else _of_ledger(path)
    if json:
        print(json_text({"of": of, "files": [{"file": name, "is": found} for name, found, _ in rows]}))
    else:
        for name, found, _ in rows:
            print(f"{name}: {found}")
        meaning = {
            "run": "Its numbers are those of a run: this user's key signed what the run wrote.",
            "spec": "Its numbers are what the files say: nothing shows that a run gave them.",
        }
        print(meaning[of])
        if of == "run" and (said := _rounding(path)):
            print(said)
    if any(refused for *_, refused in rows):
        raise typer.Exit(REFUTED)


def _of_run(folder: Path) -> tuple[list[tuple[str, str, bool]], str]:
    from tacit import check
    from tacit.runs.run_signature import SIGNATURE, SIGNED, origin_of_run
    from tacit.signing import Origin

    if not (folder / "config.json").is_file():
        raise check.fail("RUN", "the folder of a `tacit train`, with config.json in it", str(folder))
    origin = origin_of_run(folder)
    rows = [(SIGNATURE, origin.signature.value, origin.signature.refused)]
    for name in [name for name in SIGNED if (folder / name).is_file() or name in origin.files]:
        found = origin.of(name)
        rows.append((name, found.value, found.refused))
    named = all(origin.of(name) is Origin.OWN for name in ("config.json", "ledger.json", "card.json"))
    return rows, "run" if named and not any(refused for *_, refused in rows) else "spec"


def _rounding(path: Path) -> str:
    from tacit.accounting import Ledger
    from tacit.reports.facts import rounding_of

    return rounding_of(Ledger.load(path / "ledger.json" if path.is_dir() else path))


def _of_ledger(path: Path) -> tuple[list[tuple[str, str, bool]], str]:
    from tacit.accounting import Ledger

    ledger = Ledger.load(path)
    return [(path.name, ledger.origin.value, ledger.origin.refused)], "run" if ledger.is_evidence else "spec"
