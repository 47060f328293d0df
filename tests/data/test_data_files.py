"""`File` and the data folder: found, verified, and a clear sentence otherwise."""

import hashlib
from pathlib import Path

import platformdirs
import pytest

from tacit import data
from tacit.data.files import File
from tacit.errors import InvalidInput, MissingData

CONTENT = b"some published bytes"
FILE = File("set/part.gz", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), ("http://mirror/part.gz",))


def place(folder: Path, content: bytes) -> None:
    (folder / FILE.path).parent.mkdir(parents=True)
    (folder / FILE.path).write_bytes(content)


def test_verified_content(tmp_path):
    place(tmp_path, CONTENT)
    assert FILE.content(tmp_path, dataset="set") == CONTENT
    assert FILE.state(tmp_path) == "present"


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (CONTENT[:-1], f"a truncated file of {len(CONTENT) - 1} bytes"),
        (b"", "a truncated file of 0 bytes"),
        (CONTENT[:-1] + b"!", f"{len(CONTENT)} bytes with sha256 {hashlib.sha256(CONTENT[:-1] + b'!').hexdigest()}"),
        (CONTENT + b"more", f"{len(CONTENT) + 4} bytes with sha256"),
    ],
)
def test_altered_files_are_refused(content, got, tmp_path):
    place(tmp_path, content)
    with pytest.raises(MissingData) as caught:
        FILE.content(tmp_path, dataset="set")
    message = str(caught.value)
    assert got in message
    assert FILE.path in message
    assert str(tmp_path) in message
    assert FILE.sha256 in message
    assert message.endswith(
        "Run `tacit data set --download`, or point --data-dir or TACIT_DATA at a folder that has it."
    )
    assert FILE.state(tmp_path) == "altered"


def test_missing_file(tmp_path):
    with pytest.raises(MissingData, match=r"data file set/part.gz in .* got no such file"):
        FILE.content(tmp_path, dataset="set")
    assert FILE.state(tmp_path) == "missing"


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / FILE.path).mkdir(parents=True)
    with pytest.raises(MissingData, match=r"set/part\.gz"):
        FILE.content(tmp_path, dataset="set")


def test_a_file_without_mirrors_is_not_promised_for_download(tmp_path):
    with pytest.raises(MissingData) as caught:
        File("a", "0" * 64, 1).content(tmp_path, dataset="a")
    assert "--download" not in str(caught.value)


def test_other_releases_are_accepted(tmp_path):
    other = b"the same images, packed anew"
    file = File(FILE.path, FILE.sha256, FILE.size, other_releases=(hashlib.sha256(other).hexdigest(),))
    place(tmp_path, other)
    assert file.content(tmp_path, dataset="set") == other


@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
@pytest.mark.parametrize("damage", [lambda raw: raw[:1000], lambda raw: raw[:-1] + b"?"])
def test_load_refuses_damaged_originals(damage, original_files, tmp_path):
    folder = tmp_path / "a9a"
    folder.mkdir()
    (folder / "a9a").write_bytes(damage((original_files / "a9a" / "a9a").read_bytes()))
    with pytest.raises(MissingData, match="data file a9a/a9a"):
        data.load("adult_a9a", data_dir=tmp_path)
    facts = data.describe("adult_a9a", data_dir=tmp_path)
    assert facts["files"][0]["state"] == "altered"
    assert not facts["present"]


def test_the_argument_comes_before_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "environment"))
    assert data.data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert data.data_folder() == tmp_path / "environment"
    monkeypatch.setenv("TACIT_DATA", "~/somewhere")
    assert data.data_folder() == Path.home() / "somewhere"


def test_the_cache_folder_is_that_of_the_platform(monkeypatch):
    for name in ("TACIT_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert data.data_folder() == platformdirs.user_cache_path("tacit", appauthor=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: "/caches/tacit")
    assert data.data_folder() == Path("/caches/tacit")


@pytest.mark.parametrize("wrong", ["", 3])
def test_bad_folder(wrong):
    with pytest.raises(InvalidInput, match="data_dir must be a folder"):
        data.data_folder(wrong)


@pytest.mark.parametrize("call", [data.load, data.describe, data.download])
def test_unknown_names_list_the_known_and_the_nearest(call):
    with pytest.raises(InvalidInput, match=r"data set must be one of digits, .*; got 'minst'\. Did you mean 'mnist'\?"):
        call("minst")
