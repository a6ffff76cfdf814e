"""The server of the dashboard: on loopback alone, until Ctrl-C.

One person looks at it, on the same machine: the server that comes with werkzeug is enough.
"""

import os
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from hlotune.schedules.errors import VersionError

if TYPE_CHECKING:
    from hlotune.tuning_logs.dashboard.app import Dashboard

INSTALL = "pip install 'hlotune[dashboard]'"
LOOPBACK = "127.0.0.1"
LESS_URGENT = 10
"""By so much: a run that goes on meanwhile comes first."""


def require_libraries() -> None:
    """Raises VersionError where one is missing, with the command that installs it."""
    for name in ("werkzeug", "matplotlib"):
        try:
            __import__(name)
        except ModuleNotFoundError as error:
            raise VersionError(
                f"expected {name} for the dashboard, found none; install it with `{INSTALL}`, or "
                "write a report with `tune report -o report.html`"
            ) from error


def bound(port: int) -> socket.socket:
    """A socket that listens on loopback; port 0 takes any that is free.  Raises OSError."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(32)
    except OSError:
        listening.close()
        raise
    return listening


def serve(app: "Dashboard", listening: socket.socket, tell: Callable[[str], None]) -> None:
    """Answers until Ctrl-C; `tell` gets the address once it can be opened."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        """Requests are no news, and who serves them is nobody's business."""

        def log(self, type: str, message: str, *arguments: object) -> None:
            pass

        def version_string(self) -> str:
            return "hlotune"

    with suppress(OSError, AttributeError):
        os.nice(LESS_URGENT)
    with closing(listening):
        port = listening.getsockname()[1]
        server = make_server(
            LOOPBACK, port, app, threaded=True, request_handler=Quiet, fd=listening.fileno()
        )
        tell(f"http://{LOOPBACK}:{port}/")
        server.serve_forever()
