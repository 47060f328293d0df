"""`download` against a server of this machine: mirrors, checksums, atomic placement."""

import hashlib
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tacit import data
from tacit.data.files import File, fetch
from tacit.data.published import _SOURCES, Source, source
from tacit.errors import MissingData, TacitError

CONTENT = b"published" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """The address of a server that has a whole, a truncated and an altered copy of one file."""
    folder = tmp_path_factory.mktemp("mirror")
    (folder / "whole").write_bytes(CONTENT)
    (folder / "half").write_bytes(CONTENT[:4000])
    (folder / "altered").write_bytes(CONTENT[:-1] + b"!")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def published(*urls: str) -> File:
    return File("set/part", DIGEST, len(CONTENT), urls)


def only_file(folder: Path) -> bytes:
    """The content of the single file under `folder`: nothing else may be left behind."""
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    return path.read_bytes()


@pytest.mark.parametrize("first", [None, "absent", "half", "altered"])
def test_the_first_mirror_with_the_published_bytes_wins(first, mirror, tmp_path):
    urls = [f"{mirror}/{first}"] if first else []
    path = fetch(published(*urls, f"{mirror}/whole"), tmp_path, dataset="set")
    assert path == tmp_path / "set" / "part"
    assert only_file(tmp_path) == CONTENT


def test_a_failed_download_leaves_no_trace_and_tells_each_answer(mirror, tmp_path):
    file = published(f"{mirror}/absent", f"{mirror}/half", f"{mirror}/altered", "gopher://nowhere/part")
    with pytest.raises(MissingData) as caught:
        fetch(file, tmp_path, dataset="set")
    message = str(caught.value)
    assert "404" in message
    assert "/half gave a truncated file of 4000 bytes" in message
    assert f"/altered gave {len(CONTENT)} bytes with sha256" in message
    assert "gopher" in message
    assert "--data-dir" in message
    assert not list((tmp_path / "set").iterdir())


def test_an_unreachable_server_is_an_answer_too(tmp_path):
    with pytest.raises(MissingData, match="ConnectionError"):
        fetch(published("http://127.0.0.1:9/part"), tmp_path, dataset="set")


def test_a_failed_download_keeps_what_was_there(mirror, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "part").write_bytes(b"old")
    with pytest.raises(MissingData):
        fetch(published(f"{mirror}/half"), tmp_path, dataset="set")
    assert only_file(tmp_path) == b"old"
    fetch(published(f"{mirror}/whole"), tmp_path, dataset="set")
    assert only_file(tmp_path) == CONTENT


def test_an_interrupted_download_leaves_no_trace(monkeypatch, tmp_path):
    def interrupted(_, url, path, pooch):
        Path(path).write_bytes(b"part")
        raise KeyboardInterrupt

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(published("http://mirror/part"), tmp_path, dataset="set")
    assert not list((tmp_path / "set").iterdir())


def test_a_verified_file_is_not_fetched_again(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "part").write_bytes(CONTENT)
    assert fetch(published(), tmp_path, dataset="set").read_bytes() == CONTENT


def test_a_file_without_mirrors(tmp_path):
    with pytest.raises(MissingData, match=r"got no public mirror of it\. Please point --data-dir"):
        fetch(published(), tmp_path, dataset="set")


def test_pooch_is_asked_for_by_name(monkeypatch, mirror, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(TacitError, match=r"pooch must be installed to download data.*pip install 'tacit\[data\]'"):
        fetch(published(f"{mirror}/whole"), tmp_path, dataset="set")


def test_download_by_name(monkeypatch, mirror, tmp_path):
    made = Source("made", "", (1, 1), (1,), ("a", "b"), "", lambda folder: None, (published(f"{mirror}/whole"),))
    monkeypatch.setitem(_SOURCES, "made", made)
    assert data.describe("made", data_dir=tmp_path)["files"][0]["state"] == "missing"
    assert data.download("made", data_dir=tmp_path) == (tmp_path / "set" / "part",)
    assert data.describe("made", data_dir=tmp_path)["files"][0]["state"] == "present"


@pytest.mark.parametrize("name", data.names())
def test_mirrors_serve_the_name_of_the_file(name):
    for file in source(name).files:
        for url in file.urls:
            assert url.startswith(("https://", "http://"))
            assert url.rpartition("/")[2] == file.path.rpartition("/")[2]
