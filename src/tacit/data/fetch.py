"""Downloads: mirrors in order, checksums always, never half a file in place."""

import os
from pathlib import Path

from tacit.data.extras import optional
from tacit.data.files import File
from tacit.errors import MissingData


def fetch(file: File, folder: Path, *, dataset: str) -> Path:
    """The path of `file` under `folder`, downloaded unless a verified copy is there already.

    The bytes go to a temporary file beside the target, which replaces the target only after its checksum
    agrees; an interrupted download leaves the last complete state.

    Raises:
        MissingData: no mirror gave the published bytes; the message says what each mirror answered.
        TacitError: pooch is not installed.
    """
    target = folder / file.path
    if file.state(folder) == "present":
        return target
    if not file.urls:
        raise file.error(folder, "no public mirror of it", dataset=dataset)
    pooch = optional("pooch", "to download data")
    target.parent.mkdir(parents=True, exist_ok=True)
    answers = []
    for url in file.urls:
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            pooch.HTTPDownloader()(url, str(part), None)
            fault = file.fault(part.read_bytes())
            if not fault:
                os.replace(part, target)
                return target
        except (OSError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        finally:
            part.unlink(missing_ok=True)
        answers.append(f"{url} gave {fault}")
    raise MissingData(
        f"data file {file.path} must be downloadable from one of its mirrors; got " + "; ".join(answers) + ". "
        "Try again later, or point --data-dir or TACIT_DATA at a folder that has it."
    )
