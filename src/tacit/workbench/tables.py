"""Tables that somebody wants to train on: where the workbench keeps them, and the answers of their form.

An uploaded file lies in a folder of the workbench that this user alone can read; a file that is named by its path stays
where it is. What the form asks, and the configuration that it writes, are those of `tacit table init`.

The pages on which somebody chooses a table, answers its form and starts the training.
"""

import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tacit import check
from tacit.data.answers import DROP, STATED, USUAL_CODES, Draft, usual_delta
from tacit.data.declarations import column_named
from tacit.data.delimited import CSV, PARQUET, TableFormat, is_parquet, numbered, read_columns, table_file
from tacit.data.draft import draft, format_of, look_at
from tacit.errors import InvalidInput, TacitError
from tacit.runs import read_config
from tacit.serialization import json_table, json_text, write_text
from tacit.workbench import jobs
from tacit.workbench.runs import FOLDER

HOME = f"{FOLDER}/tables"
"""Folder of the tables, beside the runs."""
LARGEST = 1 << 30
"""Bytes of an uploaded file."""
_HEAD = 8192  # bytes before the content of an upload
_ID = re.compile(r"[0-9a-f]{16}")
_FACTS, _ANSWERS = "table.json", "answers.json"


@dataclass(frozen=True)
class StoredTable:
    """A table that was chosen in the browser.

    Attributes:
        number: its identifier.
        folder: of its answers and, where it was uploaded, of its file.
        file: the table itself.
        header: whether its first line names the columns.
    """

    number: str
    folder: Path
    file: Path
    header: bool

    @property
    def uploaded(self) -> bool:
        """Whether the file is a copy of the workbench's own."""
        return self.file.parent == self.folder

    @property
    def form(self) -> TableFormat:
        """How the file is written."""
        found = TableFormat() if is_parquet(self.file) else format_of(self.file)
        if self.header or is_parquet(self.file):
            return found
        return replace(found, header=False, names=numbered(self.file, found))

    def answers(self) -> dict[str, str]:
        """What was typed into its form last."""
        path = self.folder / _ANSWERS
        return {name: str(value) for name, value in json_table("answers", path).items()} if path.is_file() else {}

    def draft(self, given: Mapping[str, str]) -> Draft:
        """Its draft with the answers of a form; codes of missing cells are the usual ones where none are given."""
        found = _draft(self, self.file.stat().st_mtime_ns, given.get("target"), given.get("task"))
        if given.get("user"):
            column_named("user", given["user"], found.columns)
        return found.answered({"missing": ",".join(USUAL_CODES), **given})

    def looked(self, given: Mapping[str, str]) -> dict[str, str]:
        """The answers, and for each question without one what occurs in the file: read, and unpaid."""
        drafted = self.draft(given)
        columns = read_columns(self.file, drafted.form)
        found = dict(given)
        for entry in (drafted.target, *drafted.entries):
            if entry.role != DROP and not entry.known:
                seen = look_at(entry, columns)
                found |= {f"{name}:{entry.key}": getattr(seen, name) for name in ("low", "high", "source")}
                found[f"values:{entry.key}"] = "\n".join(seen.values)
        return found


@lru_cache(8)  # The types of the columns are found again only where the file, the target or the task changes.
def _draft(table: StoredTable, changed: int, target: str | None, task: str | None) -> Draft:
    found = draft(table.file, target=target or None, task=task or None, form=table.form)
    return replace(found, path=str(table.file))


def named(root: Path, path: str, *, header: bool = True) -> StoredTable:
    """A table of this machine by its path; raises `MissingData` or `InvalidInput` where it is none."""
    file = table_file(Path(path.strip()).expanduser())
    return _stored(_folder(root), file.resolve(), header)


async def uploaded(root: Path, content_type: str, stream: AsyncIterator[bytes]) -> StoredTable:
    """A table from a form with the one field of a file.

    Raises:
        InvalidInput: another form, a name that is no table's, or more than `LARGEST` bytes.
    """
    folder = _folder(root)
    try:
        return _stored(folder, await _written(folder, content_type, stream), True)
    except BaseException:
        shutil.rmtree(folder)
        raise


async def _written(folder: Path, content_type: str, stream: AsyncIterator[bytes]) -> Path:
    """Write the file of a form into `folder` as it comes; nothing of it is kept in memory."""
    boundary = re.search(r'boundary="?([^";,]+)', content_type)
    if boundary is None:
        raise check.fail("the upload", "a form with a file", content_type[:80])
    end = b"\r\n--" + boundary[1].encode()
    begun = b""
    async for part in stream:
        begun += part
        if b"\r\n\r\n" in begun or len(begun) > _HEAD:
            break
    head, _, part = begun.partition(b"\r\n\r\n")
    file, size = folder / _file_name(head.decode("utf-8", "replace")), -len(end) - 4
    with file.open("x+b") as target:
        file.chmod(0o600)
        while part:
            size += target.write(part)
            if size > LARGEST:
                raise check.fail("the file", f"of at most {LARGEST >> 20} MiB", "more", "Name it by its path instead.")
            part = await anext(stream, b"")
        # The boundary is the last line, with two dashes and a line feed after it.
        target.seek(max(size, 0))
        place = target.read().find(end)
        check.that(place >= 0, "the upload", "complete", "the beginning of a file")
        target.truncate(max(size, 0) + place)
    return file


def _file_name(head: str) -> str:
    found = re.search(r'filename="([^"]*)"', head)
    name = re.sub(r"[^\w.-]", "_", found[1].replace("\\", "/").rpartition("/")[2])[-100:].lstrip(".") if found else ""
    check.that(name, "the file", "chosen", "none")
    if not name.lower().endswith((*CSV, *PARQUET)):
        raise check.fail("the file", f"one whose name ends in {', '.join((*CSV, *PARQUET))}", name)
    return name


def _folder(root: Path) -> Path:
    """A new folder that this user alone can read."""
    home = root / HOME
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    made = home / secrets.token_hex(8)
    made.mkdir(mode=0o700)
    return made


def _stored(folder: Path, file: Path, header: bool) -> StoredTable:
    write_text(folder / _FACTS, json_text({"file": str(file), "header": header}))
    return table_of(folder.parents[2], folder.name)


def table_of(root: Path, number: str) -> StoredTable:
    """The stored table `number`; raises `InvalidInput` where there is none."""
    folder = (root / HOME).resolve() / number
    check.that(_ID.fullmatch(number) and (folder / _FACTS).is_file(), "table", "one of the list", number[:20])
    facts = json_table("table", folder / _FACTS)
    file = Path(str(facts["file"]))
    file = folder / file.name if file.parent.name == number else file
    return StoredTable(number, folder, file, bool(facts["header"]))


def list_tables(root: Path) -> list[StoredTable]:
    """The stored tables whose files are there, the latest first."""
    found = []
    for path in sorted((root / HOME).glob(f"*/{_FACTS}"), key=lambda path: path.stat().st_mtime, reverse=True):
        with suppress(TacitError):
            found.append(table_of(root, path.parent.name))
    return [table for table in found if table.file.is_file()]


def keep_answers(table: StoredTable, given: Mapping[str, str]) -> None:
    """Keep what was typed, for the next visit."""
    write_text(table.folder / _ANSWERS, json_text(dict(given)))


_LARGEST_ANSWERS = 4_000_000  # bytes: lists of categories of many columns
_FIELDS = ("low", "high", "values", "source", "role", "date_format", "fill")
_SETTINGS = ("target", "task", "user", "missing", "epsilon", "delta", "method", *STATED)


async def read_form(request: Request, largest: int) -> dict[str, str]:
    """The fields of a form; raises `InvalidInput` where it is larger than `largest` bytes."""
    body = b""
    async for part in request.stream():
        body += part
        check.that(len(body) <= largest, "form", f"of at most {largest} bytes", "more")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


class TablePages:
    """The pages of tables; `page` renders a template and `link` gives an address of the workbench."""

    def __init__(self, root: Path, page: Callable[..., Response], link: Callable[[str], str]):
        self._root, self._page, self._link = root, page, link

    @property
    def routes(self) -> list[Route]:
        """Their addresses."""
        posts: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "": self._name_file,
            "/upload": self._upload,
            "/{number}": self._answer,
            "/{number}/cost": self._cost,
            "/{number}/forget": self._forget,
        }
        made = [Route(f"/tables{path}", page, methods=["POST"]) for path, page in posts.items()]
        return [Route("/tables", lambda _: self._chooser()), Route("/tables/{number}", self._form), *made]

    def _chooser(self, path: str = "", sentence: str = "") -> Response:
        return self._page(
            "tables.html.j2",
            400 if sentence else 200,
            title="Train a table",
            tables=list_tables(self._root),
            largest=LARGEST >> 20,
            endings=",".join((*CSV, *PARQUET)),
            home=self._root / HOME,
            path=path,
            sentence=sentence,
        )

    async def _name_file(self, request: Request) -> Response:
        given = await read_form(request, _LARGEST_ANSWERS)
        path = given.get("path", "")
        try:
            table = await run_in_threadpool(named, self._root, path, header="headerless" not in given)
        except TacitError as error:
            return self._chooser(path, str(error))
        return RedirectResponse(self._link(f"/tables/{table.number}"), 303)

    async def _upload(self, request: Request) -> Response:
        table = await uploaded(self._root, request.headers.get("content-type", ""), request.stream())
        return RedirectResponse(self._link(f"/tables/{table.number}"), 303)

    async def _form(self, request: Request) -> Response:
        table = table_of(self._root, request.path_params["number"])
        return await run_in_threadpool(self._shown, table, table.answers(), checked=False)

    def _shown(self, table: StoredTable, given: Mapping[str, str], *, checked: bool, refused: str = "") -> Response:
        found = table.draft(given)
        faults = found.faults() | ({"configuration": refused} if refused else {})
        names = [f"{field}:{entry.key}" for entry in (found.target, *found.entries) for field in _FIELDS]
        return self._page(
            "table.html.j2",
            400 if checked and faults else 200,
            title=f"Train on {table.file.name}",
            number=table.number,
            draft=found,
            faults=faults if checked else {},
            checked=checked,
            ids={name: f"field-{place}" for place, name in enumerate((*_SETTINGS, *names))},
            pairs=lambda columns: [(name, name) for name in columns],
            usual=usual_delta(found.records),
            told=(found.promise, found.expected),
        )

    async def _cost(self, request: Request) -> Response:
        table, given = await self._given(request)
        found = await run_in_threadpool(table.draft, given)
        return self._page("cost.html.j2", told=(found.promise, found.expected))

    async def _answer(self, request: Request) -> Response:
        table, given = await self._given(request)
        action = check.choice("action", given.pop("action", "check"), ("check", "look", "start"))
        if action == "look":
            given = await run_in_threadpool(table.looked, given)
        keep_answers(table, given)
        if action == "start":
            return await run_in_threadpool(self._start, table, given)
        return await run_in_threadpool(self._shown, table, given, checked=True)

    def _start(self, table: StoredTable, given: Mapping[str, str]) -> Response:
        found = table.draft(given)
        if found.faults():
            return self._shown(table, given, checked=True)
        name = f"{table.file.name.split('.')[0][:40]}-{time.strftime('%Y%m%d-%H%M%S')}"
        path = table.folder / f"{name}.toml"
        write_text(path, found.text)
        try:
            read_config(str(path), {})
        except InvalidInput as error:
            return self._shown(table, given, checked=True, refused=str(error))
        jobs.start_table(self._root, path, name)
        return RedirectResponse(f"{self._link('/jobs')}#started", 303)

    async def _given(self, request: Request) -> tuple[StoredTable, dict[str, str]]:
        return table_of(self._root, request.path_params["number"]), await read_form(request, _LARGEST_ANSWERS)

    async def _forget(self, request: Request) -> Response:
        # The answers and, where it was uploaded, the file; a file that was named by its path stays.
        shutil.rmtree(table_of(self._root, request.path_params["number"]).folder)
        return RedirectResponse(self._link("/tables"), 303)
