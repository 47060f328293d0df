"""The server of the workbench: pages, and what lets no other site and no other user in."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tacit import check
from tacit.errors import TacitError
from tacit.reports import words
from tacit.runs import preset_names
from tacit.workbench import jobs, runs
from tacit.workbench.calculator import FIELDS, SAMPLERS, SOLVED, Answer, calculate, faults
from tacit.workbench.tables import TablePages, read_form

HOST = "127.0.0.1"
_HERE = Path(__file__).parent
_LARGEST_BODY = 20_000  # bytes of a form; the largest has a dozen fields
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_CARD_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
_ENTRY = (_HERE / "static" / "entry.js").read_text(encoding="utf-8")
_ENTRY_HASH = base64.b64encode(hashlib.sha256(_ENTRY.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    # Under no-referrer Chromium posts forms with `Origin: null`; the token still reaches no other origin.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FILES = {"workbench.css": "text/css", "workbench.js": "text/javascript", "icon.svg": "image/svg+xml"}
_SETTINGS = (*FIELDS, "sampler", "solve")
_ACTIONS = {"stop": jobs.stop, "resume": jobs.resume}
_AHEAD = 12  # runs of the list whose curves are computed before somebody compares them


def application(root: str | Path, *, token: str, port: int) -> Starlette:
    """The workbench of the runs in `root` as an ASGI application.

    Everything but /healthz takes `?token=`, a Host header of this computer and, where it changes something, an Origin
    of this server.

    Example:
        >>> len(application("runs", token="secret", port=8765).routes) > 5
        True
    """
    pages = _Pages(Path(root), token)
    failed: dict[Any, Any] = {TacitError: pages.bad_input, HTTPException: pages.no_page, Exception: pages.fault}
    made = Starlette(
        routes=[
            Route("/healthz", lambda _: PlainTextResponse("ok")),
            Route("/", pages.list_page),
            Route("/compare", pages.compare_page),
            Route("/calculator", pages.calculator_page),
            Route("/calculator/answer", pages.calculator_answer),
            Route("/jobs", pages.jobs_page),
            Route("/jobs", pages.start_job, methods=["POST"]),
            Route("/jobs/{number}", pages.job_row),
            Route("/jobs/{number}/{action}", pages.change_job, methods=["POST"]),
            Route("/budgets", pages.budgets_page),
            Route("/runs/{name}", pages.run_page),
            Route("/runs/{name}/note", pages.keep_note, methods=["POST"]),
            Route("/runs/{name}/{page}", pages.run_file),
            *TablePages(Path(root), pages.page, pages.link).routes,
            Route("/static/{name}", pages.static_file),
        ],
        exception_handlers=failed,
    )
    made.add_middleware(_Gate, token=token, port=port, page=pages.refused)
    return made


def serve(root: str | Path = "runs", *, port: int = 8765, open_browser: bool = False) -> None:
    """Serve the workbench on 127.0.0.1 until interrupted; prints its address, which holds the token.

    Example:
        >>> serve.__name__  # blocks: run `tacit serve`
        'serve'
    """
    import uvicorn

    port = check.count("port", port, maximum=65535)
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{port}/?token={token}"
    print(f"Workbench: {address}", flush=True)
    if open_browser:
        import webbrowser

        webbrowser.open(address)
    uvicorn.run(application(root, token=token, port=port), host=HOST, port=port, log_level="error", access_log=False)


class _Gate(BaseHTTPMiddleware):
    """Refuses foreign hosts, requests without the token and forms of other sites; sets the headers of every answer."""

    def __init__(self, app: Any, *, token: str, port: int, page: Callable[[Request, int, str], Response]):
        super().__init__(app)
        self._token, self._page = token, page
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def dispatch(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        refused = self._refusal(request)
        with check.speaking_to("browser"):
            response = await call_next(request) if refused is None else self._page(request, *refused)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        if request.headers.getlist("host") not in [[host] for host in self._hosts]:
            return 421, "host must be 127.0.0.1 with the port of the workbench."
        if request.url.path == "/healthz":
            return None
        if not _knows(request, self._token):
            return 403, "token must be the one in the address that `tacit serve` printed."
        own = {f"http://{host}" for host in self._hosts}
        if request.method not in ("GET", "HEAD") and request.headers.get("origin") not in own:
            return 403, "origin must be the workbench itself."
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests of other sites are refused."
        return None


def _knows(request: Request, token: str) -> bool:
    return hmac.compare_digest(request.query_params.get("token", "").encode(), token.encode())


class _Pages:
    """The pages; each reads what is stored and keeps nothing but a cache of curves."""

    def __init__(self, root: Path, token: str):
        from jinja2 import Environment, PackageLoader, StrictUndefined

        self._root, self._token = root, token
        loader = PackageLoader("tacit.workbench", "templates")
        self._templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        self._templates.globals["link"] = self.link
        self._templates.filters["points"] = runs.points_of

    def link(self, path: str, **query: str) -> str:
        """The address of a page, which holds the token."""
        more = "".join(f"&{quote(name)}={quote(value)}" for name, value in query.items())
        return f"{quote(path)}?token={quote(self._token)}{more}"

    def page(self, name: str, status: int = 200, **content: Any) -> Response:
        """The template `name` with its content."""
        return HTMLResponse(self._templates.get_template(name).render(token=self._token, **content), status)

    def bad_input(self, request: Request, error: Exception) -> Response:
        """One sentence on a page of its own, with status 400."""
        return self.page("error.html.j2", 400, title="Bad input", sentence=str(error), back=self._back(request))

    def no_page(self, request: Request, error: HTTPException) -> Response:
        """An address or a method that the workbench does not have."""
        return self.page("error.html.j2", error.status_code, title="No such page", sentence=error.detail, back="/")

    def fault(self, request: Request, error: Exception) -> Response:
        """A fault of tacit itself, of which the page tells the kind alone: its message may quote data."""
        sentence = f"tacit failed: {type(error).__name__}."
        page = self.page("error.html.j2", 500, title="Fault", sentence=sentence, back=self._back(request))
        page.headers.update(_HEADERS)  # This handler stands outside of the gate.
        return page

    def refused(self, request: Request, status: int, sentence: str) -> Response:
        """What the gate refused; the way back, which holds the token, only for who sent the token.

        An address without it, as it is shared, asks for the token; the tab that had it before sends it again.
        """
        if _knows(request, self._token):
            return self.page("error.html.j2", status, title="Refused", sentence=sentence, back="/")
        asks = status == 403 and request.method == "GET"
        asked = [each for each in request.query_params.multi_items() if each[0] != "token"] if asks else None
        page = self._templates.get_template("refused.html.j2").render(sentence=sentence, asked=asked, script=_ENTRY)
        policy = _POLICY.replace("script-src 'self'", f"script-src 'sha256-{_ENTRY_HASH}'")
        return HTMLResponse(page, status, headers={"Content-Security-Policy": policy})

    @staticmethod
    def _back(request: Request) -> str:
        path = request.url.path
        return "/" + path.split("/")[1] if path.startswith(("/calculator", "/jobs", "/tables")) else "/"

    def list_page(self, request: Request) -> Response:
        query, sort = request.query_params.get("q", "")[:200], request.query_params.get("sort", "date")
        found = runs.list_runs(self._root, query=query, sort=sort)
        page = self.page("runs.html.j2", title="Runs", runs=found, query=query, sort=sort, sorts=runs.SORTS)
        page.background = BackgroundTask(runs.draw_ahead, self._root, [row["name"] for row in found[:_AHEAD]])
        return page

    def run_page(self, request: Request) -> Response:
        row = runs.run_row(self._root, request.path_params["name"])
        pages = runs.pages_of(self._root, row["name"])
        return self.page("run.html.j2", title=row["name"], run=row, pages=pages, longest=runs.LONGEST_NOTE)

    async def keep_note(self, request: Request) -> Response:
        name = request.path_params["name"]
        given = await read_form(request, _LARGEST_BODY)
        await run_in_threadpool(runs.keep_note, self._root, name, given.get("note", ""))
        return RedirectResponse(self.link(f"/runs/{name}"), 303)

    def compare_page(self, request: Request) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 1 <= len(names) <= runs.MOST_COMPARED:
            raise check.fail("runs", f"1 to {runs.MOST_COMPARED} of the list", len(names), "Tick them and compare.")
        curves = {name: runs.curve_of(runs.folder_of(self._root, name)) for name in names}
        drawn = [(name, curve) for name, curve in curves.items() if curve is not None]
        rows = [(index, runs.run_row(self._root, name)) for index, (name, _) in enumerate(drawn)]
        left_out = [name for name, curve in curves.items() if curve is None]
        return self.page("compare.html.j2", title="Compare", curves=drawn, rows=rows, left_out=left_out)

    def calculator_page(self, request: Request) -> Response:
        given = dict(request.query_params)
        # "Keep" lays the settings of now beside those that follow; whatever is kept is itself an address of settings.
        kept = urlencode({name: given[name] for name in _SETTINGS if name in given}) if "keep" in given else ""
        given["kept"] = kept or ("" if "forget" in given else given.get("kept", ""))
        return self.page("calculator.html.j2", title="Calculator", **self._answered(given, drawn=True))

    def calculator_answer(self, request: Request) -> Response:
        given = dict(request.query_params)
        return self.page("answer.html.j2", **self._answered(given, drawn="drawn" in given))

    def _answered(self, given: dict[str, str], *, drawn: bool) -> dict[str, Any]:
        """What the page of the calculator shows; the curves, which take a second, only where they are to be drawn."""
        form = {name: given.get(name, first) for name, (_, first) in FIELDS.items()}
        form |= {"solve": given.get("solve", SOLVED[0]), "sampler": given.get("sampler", SAMPLERS[0])}
        form |= {"kept": given.get("kept", "")[:500]}
        answers: dict[str, Answer] = {}
        sentence, wrong = "", faults(form)
        try:
            answers["these settings"] = calculate(form)
            form[form["solve"]] = answers["these settings"].found
            if form["kept"]:
                answers["kept settings"] = calculate(dict(parse_qsl(form["kept"])))
        except TacitError as error:
            sentence = "" if wrong else str(error)
        curves = {name: answer.curve for name, answer in answers.items()} if drawn else {}
        return {
            "form": form,
            "fields": {name: label for name, (label, _) in FIELDS.items()},
            "choices": {"sampler": ("Batches", SAMPLERS), "solve": ("Find", SOLVED)},
            "answers": list(answers.items()),
            "found": {name: share for name, (share, _) in curves.items()},
            "lines": [(name, beta) for name, (_, beta) in curves.items()],
            "faults": wrong,
            "sentence": sentence,
            "words": words,
        }

    def jobs_page(self, request: Request) -> Response:
        found, listed = jobs.list_jobs(self._root), runs.list_runs(self._root)
        return self.page("jobs.html.j2", title="Jobs", jobs=found, presets=preset_names(), runs=listed)

    async def start_job(self, request: Request) -> Response:
        await run_in_threadpool(jobs.start, self._root, await read_form(request, _LARGEST_BODY))
        return RedirectResponse(self.link("/jobs"), 303)

    def change_job(self, request: Request) -> Response:
        action = check.choice("action", request.path_params["action"], _ACTIONS)
        _ACTIONS[action](self._root, request.path_params["number"])
        return RedirectResponse(f"{self.link('/jobs')}#started", 303)

    def job_row(self, request: Request) -> Response:
        return self.page("job_row.html.j2", job=jobs.state(self._root, request.path_params["number"]))

    def budgets_page(self, request: Request) -> Response:
        return self.page("budgets.html.j2", title="Budgets", budgets=runs.budgets(), words=words)

    def run_file(self, request: Request) -> Response:
        page = check.choice("page", request.path_params["page"], runs.PAGES)
        text = runs.page_of(runs.folder_of(self._root, request.path_params["name"]), page)
        return Response(text, media_type=runs.PAGES[page], headers={"Content-Security-Policy": _CARD_POLICY})

    def static_file(self, request: Request) -> Response:
        name = check.choice("file", request.path_params["name"], _FILES)
        return Response((_HERE / "static" / name).read_bytes(), media_type=_FILES[name])
