"""The command line: each command parses, calls one function and prints.

Exit codes: 0 done, 2 bad input (one sentence on stderr), 3 a claim was refuted or a file of a run was changed, 1 a
failure of the program itself.
"""

import os
import sys
import warnings
from typing import Annotated

import typer
from typer.exceptions import TyperException

from tacit import __version__
from tacit.check import show_values, speaking_to, values_shown, visible
from tacit.cli.console import REFUTED, Interrupted, LazyGroup
from tacit.errors import Changed, CodeWarning, LeakWarning, PrivacyWarning, TacitError, missing_extra

_GO_ON = {
    "audit": "The same command goes on with the shadow models and repeats that RUN/audit keeps.",
    "sweep": "The same command goes on with the tasks that have no result yet.",
    "reproduce": "The same command goes on with the runs that have no result yet.",
    "train": "No run had begun: nothing was released.",
}
_AGAIN = "Run the same command again."
_INTERRUPTED = 130  # what typer makes of Ctrl-C

app = typer.Typer(
    name="tacit",
    cls=LazyGroup,
    help="Differentially private machine learning whose every claim is tested.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; never a traceback (set TACIT_TRACEBACK=1 to see one)."""
    given = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    with show_values(values_shown() or "--show-values" in given), speaking_to("terminal"):
        return _run(given)


def _run(arguments: list[str]) -> int:
    warnings.showwarning = _warn
    warnings.filterwarnings("always", category=CodeWarning)
    try:
        code = app(args=arguments, standalone_mode=False)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except Interrupted as stop:
        return _fail(f"interrupted. {stop}", 1)
    except (typer.Abort, KeyboardInterrupt):
        return _fail(f"interrupted. {_GO_ON.get(arguments[0], _AGAIN)}", 1)
    except TyperException as error:
        return _fail(error.format_message(), 2)
    except TacitError as error:
        return _fail(str(error), REFUTED if isinstance(error, Changed) else 2)
    except Exception as error:
        if isinstance(error, ImportError) and (missing := missing_extra(error)):
            return _fail(str(missing), 2)
        if isinstance(error, OSError) and error.filename is not None:
            return _fail(f"path must be one that this command can use; got {error.filename!r}. {error.strerror}.", 2)
        if os.environ.get("TACIT_TRACEBACK"):
            raise
        # The message of an unforeseen error may quote the data.
        told = str(error) if values_shown() else "Set TACIT_SHOW_VALUES=1 for its message, which may quote data."
        return _fail(f"tacit failed: {type(error).__name__}: {told}", 1)


def _warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Our own warnings as one line for the user; other libraries' stay out of the way."""
    if issubclass(category, CodeWarning | LeakWarning | PrivacyWarning):
        print(f"warning: {visible(' '.join(str(message).split()))}", file=sys.stderr)


def _fail(sentence: str, code: int) -> int:
    print(visible(" ".join(sentence.split())), file=sys.stderr)
    return code
