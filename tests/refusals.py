"""What every wrong case of the catalogues is told: `refusals.json`, so that a changed sentence shows as a difference.

    python -m tests.refusals        writes the table anew

The tests of the catalogues compare each of their cases with it.
"""

import json
import re
import tempfile
from pathlib import Path

import torch

from tacit.errors import TacitError

TABLE = Path(__file__).with_name("refusals.json")


def sentence(said: object) -> str:
    """What a user reads, without the numbers of lines and the folders of temporary files."""
    return re.sub(r"(\.py):\d+", r"\1", re.sub(r"line \d+ of ", "line of ", str(said)))


def stored(catalogue: str, name: str) -> str:
    """The sentence of the table."""
    return json.loads(TABLE.read_text())[catalogue][name]


def raised(function, *given) -> str:
    """The sentence of the error that `function(*given)` raises."""
    try:
        function(*given)
    except (TacitError, TypeError, ValueError) as error:
        return sentence(error)
    return "nothing"


def operations(name):
    """`check_recordwise` on a program: the refusal, or the kind and file of what is read or unknown."""
    from tacit.verification import check_recordwise
    from tests.verification.catalogue_wrong import WRONG
    from tests.verification.test_catalogue import records

    try:
        found = check_recordwise(WRONG[name][0], *records())
    except TacitError as error:
        return sentence(error)
    return sentence(f"reads at {', '.join(found.reads)}; unknown at {', '.join(found.foreign)}")


def modules(name):
    """The clipped sum of a module."""
    from tacit.gradients import clipped_sum
    from tests.gradients.modules import WRONG
    from tests.gradients.test_model_probe import X, Y, cross_entropy

    torch.manual_seed(0)
    return raised(lambda: clipped_sum(WRONG[name](), cross_entropy, X, Y, clip_norm=1.0))


def loops(name):
    """A training loop around `make_private`: its refusal, or what is missing of its facts."""
    from tests.training.test_wrong_loops import outcome
    from tests.training.wrong_loops import WRONG

    return outcome(WRONG[name])[1]


def means(name):
    """A loss that is no mean, under `PrivacyEngine`."""
    from tests.training.test_losses import NO_MEANS, opacus_shaped, several_steps

    return raised(lambda: several_steps(opacus_shaped(), NO_MEANS[name]))


def second_passes(name):
    """A loss of outputs of two passes."""
    from tests.training.test_losses import MIXING_SECOND_PASSES, TestSecondPasses

    return raised(TestSecondPasses.run, MIXING_SECOND_PASSES[name])


def data_sets(name):
    """A data set with a `__getitem__` of its own: its refusal, or what is doubted of it."""
    from tests.training.test_guarded_data import guarded_case

    with tempfile.TemporaryDirectory() as folder:
        guarded = guarded_case(name, Path(folder))
        said = raised(lambda: [guarded[i] for i in range(len(guarded))])
    return sentence(guarded.doubt) if said == "nothing" else said


def catalogues():
    """Name of a catalogue -> its names, and what says the sentence of one."""
    from tests.gradients.modules import WRONG as MODULES
    from tests.training.test_guarded_data import MIXED, UNDECIDED
    from tests.training.test_losses import MIXING_SECOND_PASSES, NO_MEANS
    from tests.training.wrong_loops import WRONG as LOOPS
    from tests.verification.catalogue_wrong import WRONG as OPERATIONS

    return {
        "operations": (OPERATIONS, operations),
        "modules": (MODULES, modules),
        "loops": (LOOPS, loops),
        "data sets": ([*MIXED, *UNDECIDED], data_sets),
        "means": (NO_MEANS, means),
        "second passes": (MIXING_SECOND_PASSES, second_passes),
    }


def write():
    """Write the table."""
    found = {kind: {name: said(name) for name in sorted(names)} for kind, (names, said) in catalogues().items()}
    TABLE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write()
