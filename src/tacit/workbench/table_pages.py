"""The pages on which somebody chooses a table, answers its form and starts the training."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tacit import check
from tacit.data.answers import STATED, usual_delta
from tacit.data.delimited import CSV, PARQUET
from tacit.errors import InvalidInput, TacitError
from tacit.workbench import jobs, tables
from tacit.workbench.tables import StoredTable

_LARGEST_ANSWERS = 4_000_000  # bytes: lists of categories of many columns
_FIELDS = ("low", "high", "values", "source", "role", "date_format", "fill")
_SETTINGS = ("target", "task", "user", "missing", "epsilon", "delta", "method", *STATED)


async def read_form(request: Request, largest: int) -> dict[str, str]:
    """The fields of a form; raises `InvalidInput` where it is larger than `largest` bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > largest:
            raise check.fail("form", f"of at most {largest} bytes", "more")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


class TablePages:
    """The pages of tables; `page` renders a template and `link` gives an address of the workbench."""

    def __init__(self, root: Path, page: Callable[..., Response], link: Callable[[str], str]):
        self._root = root
        self._page = page
        self._link = link

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
        return [Route("/tables", self._choose), Route("/tables/{number}", self._form), *made]

    async def _choose(self, request: Request) -> Response:
        return self._chooser()

    def _chooser(self, path: str = "", sentence: str = "") -> Response:
        return self._page(
            "tables.html.j2",
            400 if sentence else 200,
            title="Train a table",
            tables=tables.list_tables(self._root),
            largest=tables.LARGEST >> 20,
            endings=",".join((*CSV, *PARQUET)),
            home=self._root / tables.HOME,
            path=path,
            sentence=sentence,
        )

    async def _name_file(self, request: Request) -> Response:
        given = await read_form(request, _LARGEST_ANSWERS)
        path = given.get("path", "")
        try:
            table = await run_in_threadpool(tables.named, self._root, path, header="headerless" not in given)
        except TacitError as error:
            return self._chooser(path, str(error))
        return self._to(table)

    async def _upload(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "")
        return self._to(await tables.uploaded(self._root, kind, request.stream()))

    def _to(self, table: StoredTable) -> Response:
        return RedirectResponse(self._link(f"/tables/{table.number}"), 303)

    async def _form(self, request: Request) -> Response:
        table = tables.table_of(self._root, request.path_params["number"])
        return await run_in_threadpool(self._shown, table, table.answers(), checked=False)

    def _shown(self, table: StoredTable, given: Mapping[str, str], *, checked: bool, refused: str = "") -> Response:
        found = table.draft(given)
        faults = found.faults() | ({"configuration": refused} if refused else {})
        every = (found.target, *found.entries)
        names = [f"{field}:{entry.key}" for entry in every for field in _FIELDS]
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
        tables.keep_answers(table, given)
        if action == "start":
            return await run_in_threadpool(self._start, table, given)
        return await run_in_threadpool(self._shown, table, given, checked=True)

    def _start(self, table: StoredTable, given: Mapping[str, str]) -> Response:
        found = table.draft(given)
        if found.faults():
            return self._shown(table, given, checked=True)
        name = f"{table.file.name.split('.')[0][:40]}-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            path = tables.write_configuration(table, found, name)
        except InvalidInput as error:
            return self._shown(table, given, checked=True, refused=str(error))
        jobs.start_table(self._root, path, name)
        return RedirectResponse(f"{self._link('/jobs')}#started", 303)

    async def _given(self, request: Request) -> tuple[StoredTable, dict[str, str]]:
        table = tables.table_of(self._root, request.path_params["number"])
        return table, await read_form(request, _LARGEST_ANSWERS)

    async def _forget(self, request: Request) -> Response:
        tables.forget(tables.table_of(self._root, request.path_params["number"]))
        return RedirectResponse(self._link("/tables"), 303)
