"""A live page on localhost with the training curves of a run.

Only this machine can access it: the server listens on 127.0.0.1 and checks the host of requests.
"""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from undamped._base.errors import RunError
from undamped.lab.report.page import asset
from undamped.lab.training.run import Run

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data: blob:; font-src data:"
)


class Watch:
    """A live page for a run folder.

    Args:
        path: The run folder; it may still be empty.
        port: The port on localhost; 0 selects a free one.

    Example:
        >>> with Watch("runs/copy-unicornn-1") as watch:
        ...     print(watch.url)
    """

    def __init__(self, path: str | Path, *, port: int = 0) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise RunError(f"No such run folder: {self.path}")
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "not a port"
            raise RunError(
                f"Cannot listen on port {port}: {reason}. "
                "Choose a free port from 1 to 65535, or 0 for any."
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def stop(self) -> None:
        """Stop the server; a second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def state(self) -> dict[str, Any]:
        """Return the data that the page polls: status, title and the rows of the curves."""
        run = Run(self.path)
        settings: dict[str, Any] = {}
        rows: list[dict[str, float]] = []
        if (self.path / "run.json").exists():
            try:
                settings, rows = run.settings, run.metrics()
            except RunError as error:
                settings = {"status": f"damaged: {error}"}
        model = settings.get("model", {}).get("name", "")
        task = settings.get("task", {}).get("name", "")
        return {
            "title": f"{model} on {task}" if model else self.path.name,
            "status": settings.get("status", "waiting"),
            "rows": [{k: v for k, v in row.items() if v == v and abs(v) < 1e300} for row in rows],
        }


def _page(watch: Watch) -> str:
    title = html.escape(watch.path.name)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{title} · undamped</title><style>{asset('page.css')}</style></head><body><main>"
        f'<header><h1 id="title">{title}</h1></header>'
        '<p class="headline" id="status" role="status" aria-live="polite">waiting</p>'
        '<div id="plots"></div></main><script src="/chart.js"></script>'
        '<script src="/live.js"></script></body></html>\n'
    )


def _handler(watch: Watch) -> type[BaseHTTPRequestHandler]:
    answers: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/html", lambda: _page(watch)),
        "/chart.js": ("text/javascript", lambda: asset("chart.js")),
        "/live.js": ("text/javascript", lambda: asset("live.js")),
        "/state.json": ("application/json", lambda: json.dumps(watch.state(), allow_nan=False)),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # DNS rebinding: another site could resolve its name to this address.
            name = self.headers.get("Host", "").rpartition(":")[0]
            if name not in ("127.0.0.1", "localhost") or self.path not in answers:
                self.send_error(404)
                return
            kind, make = answers[self.path]
            body = make().encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing, because of the progress bar."""

    return Handler
