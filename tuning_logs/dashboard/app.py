"""The dashboard as a WSGI application: its addresses, its pages, and which requests it answers.

It answers GET and HEAD requests to hosts that are this machine, and changes nothing.  A page
carries the version of the records that it was made of; a request that names this version gets no
new page until there are new records.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from hlotune.schedules.errors import HlotuneError, NoRecord
from hlotune.tuning_logs.dashboard import pages
from hlotune.tuning_logs.dashboard.codes import Codes
from hlotune.tuning_logs.dashboard.sources import Sources, version_of
from hlotune.tuning_logs.evidence import Evidence, evidence
from hlotune.tuning_logs.listing import find_run
from hlotune.tuning_logs.page.document import STYLE

HOSTS = ("127.0.0.1", "localhost")
"""Names of this machine.  Requests by another name are refused, since a page of another origin may
have made its own name lead here."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
MOST_PAGES = 100
"""The number of pages that are kept, so that a replay played again is not drawn again."""

RULES = Map(
    [
        Rule("/", endpoint="runs"),
        Rule("/kernels", endpoint="kernels"),
        Rule("/runs/<int:source>/<run>", endpoint="run"),
        Rule("/runs/<int:source>/<run>/kernels/<key>", endpoint="kernel"),
        Rule("/runs/<int:source>/<run>/replay", endpoint="replay"),
        Rule("/compare", endpoint="compare"),
        Rule("/style.css", endpoint="style"),
        Rule("/dashboard.js", endpoint="script"),
    ]
)

Start = Callable[..., Any]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass
class Dashboard:
    """The application; `version` is the version of the hlotune that runs it."""

    sources: Sources
    version: str
    codes: Codes = field(default_factory=Codes)
    _drawing: Lock = field(default_factory=Lock)
    """Held while a page is drawn: matplotlib's settings belong to the whole process."""
    _pages: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)
    """Pages that are kept, by address and version."""
    _evidence: OrderedDict[tuple[int, str, str], Evidence] = field(default_factory=OrderedDict)
    """Evidence of runs that is kept, by source, run and version."""

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        response = self.answer(Request(environ))
        response.headers.update(HEADERS)
        return response(environ, start)

    def answer(self, request: Request) -> Response:
        if not is_this_machine(request.environ.get("HTTP_HOST", "")):
            return _plain(403, f"expected a request to {' or '.join(HOSTS)}, got another host")
        if request.method not in ("GET", "HEAD"):
            return _plain(405, "expected GET: the dashboard only reads")
        try:
            endpoint, values = RULES.bind_to_environ(request.environ).match()
            if endpoint in FILES:
                return _file(*FILES[endpoint])
            return self._page(request, endpoint, dict(values))
        except HTTPException as error:
            return _page(error.code or 404, pages.problem(f"There is no page {request.path}."))
        except NoRecord as error:
            return _page(404, pages.problem(" ".join(str(error).split())))
        except HlotuneError as error:
            return _page(500, pages.problem(" ".join(str(error).split())))

    def _page(self, request: Request, endpoint: str, values: dict[str, Any]) -> Response:
        values |= compared(request) if endpoint == "compare" else {}
        version = self._version(endpoint, values)
        tag = hashlib.sha256(f"{self.version} {endpoint} {version}".encode()).hexdigest()[:32]
        if request.if_none_match.contains(tag):
            response = Response(status=304)
        else:
            response = _page(200, self._made(request, endpoint, values, tag))
        response.set_etag(tag)
        return response

    def _version(self, endpoint: str, values: dict[str, Any]) -> str:
        if "run" not in values:  # lists, and what is compared: any news
            return repr(self.sources.versions())
        with self.sources.opened(values["source"]) as database:
            run = find_run(database, values["run"])
            version = version_of(database, run)
        more = self.codes.state(run, values["key"]) if endpoint == "kernel" else ""
        return f"{version} {more}"

    def _made(self, request: Request, endpoint: str, values: dict[str, Any], tag: str) -> str:
        key = (request.full_path, tag)
        with self._drawing:
            if key not in self._pages:
                self._pages[key] = self._drawn(request, endpoint, values)
            return _kept(self._pages, key, MOST_PAGES)

    def _drawn(self, request: Request, endpoint: str, values: dict[str, Any]) -> str:
        if endpoint == "runs":
            return pages.runs(self.sources)
        if endpoint == "kernels":
            return pages.kernels(self.sources)
        if endpoint == "compare":
            first, second = (self._found(*values[name]) for name in "ab")
            return pages.compare(first, second, self.version)
        source, found = values["source"], self._found(values["source"], values["run"])
        if endpoint == "run":
            return pages.run(source, found, self.sources.runs(), self.version)
        if endpoint == "kernel":
            return pages.kernel(source, found, values["key"], self.codes)
        trial = request.args.get("trial", type=int)
        return pages.replay(source, found, request.args.get("kernel", ""), trial)

    def _found(self, source: int, run: str) -> Evidence:
        with self.sources.opened(source) as database:
            run = find_run(database, run)
            key = (source, run, version_of(database, run))
            if key not in self._evidence:
                self._evidence[key] = evidence(database, run)
            return _kept(self._evidence, key, 4)


def compared(request: Request) -> dict[str, tuple[int, str]]:
    """The database and run that a request names as `a` and `b`.

    Raises NoRecord where it lacks one.
    """
    found = {name: request.args.get(name, "").partition("/") for name in "ab"}
    for name, (source, _, run) in found.items():
        if not (source.isascii() and source.isdecimal() and run):
            raise NoRecord(
                f"expected {name} as the number of a database, / and a run, got "
                f"{request.args.get(name, '')!r:.60}; begin at the page of a run"
            )
    return {name: (int(source), run) for name, (source, _, run) in found.items()}


def _kept(found: OrderedDict[Key, Value], key: Key, most: int) -> Value:
    """The value of a key, which becomes the newest; the oldest are dropped beyond `most`."""
    found.move_to_end(key)
    while len(found) > most:
        found.popitem(last=False)
    return found[key]


def is_this_machine(host: str) -> bool:
    """Whether the Host header of a request, with or without a port, names this machine."""
    name, _, port = host.partition(":")
    return name in HOSTS and (not port or port.isdecimal())


FILES = {
    "style": ("text/css", (STYLE, Path(__file__).with_name("dashboard.css"))),
    "script": ("text/javascript", (Path(__file__).with_name("dashboard.js"),)),
}


def _file(kind: str, paths: tuple[Path, ...]) -> Response:
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return Response(text, mimetype=kind)


def _page(status: int, html: str) -> Response:
    return Response(html.encode("utf-8", "backslashreplace"), status, mimetype="text/html")


def _plain(status: int, words: str) -> Response:
    return Response(f"{words}\n", status, mimetype="text/plain")
