"""Downloads: resumed, hashed, bounded; against a server on this machine that misbehaves."""

import hashlib
import http.server
import threading
from contextlib import contextmanager

import pytest

from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.transport.download import (
    Client,
    DownloadError,
    UnreachableError,
    download,
)

CONTENT = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT; its attributes say how badly."""

    daemon_threads = True
    break_after: int | None = None  # bytes after which the connection is cut
    breaks = 1_000_000  # how many times it is cut
    ranges = True
    etag: str | None = '"one"'
    content = CONTENT
    requests: list


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requests.append(dict(self.headers))
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.end_headers()
            return
        content, start, status = server.content, 0, 200
        requested = self.headers.get("Range")
        fresh = self.headers.get("If-Range") in (None, server.etag)
        if requested and server.ranges and fresh:
            start, status = int(requested[6:-1]), 206
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if server.break_after is not None and server.breaks > 0:
            server.breaks -= 1
            body = body[: server.break_after]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serving(**attributes):
    server = Server(("127.0.0.1", 0), Handler)
    server.requests = []
    for name, value in attributes.items():
        setattr(server, name, value)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Notes(Listener):
    def __init__(self):
        self.notes, self.bytes, self.ended = [], 0, 0

    def note(self, text):
        self.notes.append(text)

    def advance(self, count):
        self.bytes += count

    def end(self):
        self.ended += 1


def get(url, folder, **options):
    return download(url, folder / "file", partial=folder / "partial", **options)


def test_a_file_arrives_with_its_checksum(tmp_path):
    notes = Notes()
    with serving() as (_, base):
        assert get(f"{base}/f", tmp_path, sha256=DIGEST, listener=notes) == DIGEST
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    assert notes.bytes == len(CONTENT) and notes.ended == 1


def test_a_broken_connection_is_resumed_at_once(tmp_path):
    notes = Notes()
    with serving(break_after=400_000, breaks=2) as (server, base):
        get(f"{base}/f", tmp_path, sha256=DIGEST, listener=notes)
        assert [request.get("Range") for request in server.requests] == [
            None,
            "bytes=400000-",
            "bytes=800000-",
        ]
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert any("interrupted" in note for note in notes.notes)


@pytest.mark.parametrize("checksum", [DIGEST, None])
def test_an_interrupted_download_goes_on_in_the_next_call(tmp_path, checksum):
    with serving(break_after=150_000) as (server, base):
        with pytest.raises(DownloadError, match="interrupted 4 times"):
            get(f"{base}/f", tmp_path, sha256=checksum)
        assert not (tmp_path / "file").exists()
        assert (tmp_path / "partial").stat().st_size == 600_000
        server.break_after = None
        server.requests.clear()
        get(f"{base}/f", tmp_path, sha256=checksum)
        assert server.requests[0]["Range"] == "bytes=600000-"
        assert server.requests[0]["If-Range"] == '"one"'
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_halves_of_two_editions_are_never_joined(tmp_path):
    with serving(break_after=150_000) as (server, base):
        with pytest.raises(DownloadError):
            get(f"{base}/f", tmp_path)
        server.break_after, server.etag = None, '"two"'
        server.content = CONTENT[::-1]
        get(f"{base}/f", tmp_path)
    assert (tmp_path / "file").read_bytes() == CONTENT[::-1]


def test_without_edition_and_checksum_it_starts_over(tmp_path):
    (tmp_path / "partial").write_bytes(b"something old")
    with serving(etag=None) as (server, base):
        get(f"{base}/f", tmp_path)
        assert "Range" not in server.requests[0]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_half_is_found_and_fetched_again(tmp_path):
    (tmp_path / "partial").write_bytes(b"\xff" * 1000)
    with serving() as (_, base):
        get(f"{base}/f", tmp_path, sha256=DIGEST)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_everything_again(tmp_path):
    (tmp_path / "partial").write_bytes(CONTENT[:1000])
    with serving(ranges=False) as (_, base):
        get(f"{base}/f", tmp_path, sha256=DIGEST)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_whole_partial_file_needs_no_more_bytes(tmp_path):
    (tmp_path / "partial").write_bytes(CONTENT)
    with serving() as (server, base):
        get(f"{base}/f", tmp_path, sha256=DIGEST)
        assert len(server.requests) == 1
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing(tmp_path):
    with serving() as (_, base), pytest.raises(DownloadError, match="SHA-256"):
        get(f"{base}/f", tmp_path, sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_too_large_is_stopped(tmp_path):
    with serving() as (_, base), pytest.raises(DownloadError, match="limit"):
        get(f"{base}/f", tmp_path, limit=1000)
    assert not (tmp_path / "file").exists()


def test_missing_file_says_so(tmp_path):
    with serving() as (_, base), pytest.raises(DownloadError, match="HTTP 404") as caught:
        get(f"{base}/missing", tmp_path)
    assert not isinstance(caught.value, UnreachableError)


def test_a_closed_port_is_an_unreachable_host(tmp_path):
    with serving() as (_, base):
        pass
    with pytest.raises(UnreachableError, match="refused") as caught:
        get(f"{base}/f", tmp_path)
    assert caught.value.host == "127.0.0.1"


def test_a_host_that_says_nothing_is_given_up(tmp_path):
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        with pytest.raises(UnreachableError, match="no answer"):
            port, client = silent.getsockname()[1], Client(timeout=0.2)
            get(f"http://127.0.0.1:{port}/f", tmp_path, client=client)


@pytest.mark.parametrize("url", ["http://example.org/f", "ftp://example.org/f", "file:///etc/x"])
def test_only_https_is_asked(tmp_path, url):
    with pytest.raises(DownloadError, match="instead of https"):
        get(url, tmp_path)


def test_redirects_are_checked_too(tmp_path):
    with serving() as (_, base):
        get(f"{base}/to/{base}/f", tmp_path, sha256=DIGEST)
        with pytest.raises(DownloadError, match="instead of https"):
            get(f"{base}/to/http://example.org/f", tmp_path)
        with pytest.raises(DownloadError):
            get(f"{base}/to/file:///etc/passwd", tmp_path)


def test_passwords_stay_with_their_host_and_out_of_messages(tmp_path):
    with serving() as (server, base):
        with_user = base.replace("//", "//me:secret@")
        client = Client(headers={"Authorization": "Basic x"}, plain_http=True)
        client.read_page(f"{with_user}/to/{base}/f")
        assert [("Authorization" in request) for request in server.requests] == [True, False]
        with pytest.raises(DownloadError) as caught:
            get(f"{with_user}/missing?token=secret", tmp_path)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "unknown size"),
        (0, "0 B"),
        (999, "999 B"),
        (999_960, "1.0 MB"),
        (11_496_804, "11.5 MB"),
        (3_000_000_000, "3.0 GB"),
    ],
)
def test_sizes_for_people(size, text):
    assert human(size) == text
