import pytest

from tacit.serialization import write_text


def test_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new" / "a.txt"
    write_text(path, "one")
    write_text(path, "δ")
    assert path.read_text(encoding="utf-8") == "δ"
    assert list(path.parent.iterdir()) == [path]


def test_an_interruption_keeps_the_previous_content(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "one")

    def full_disk(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr("tacit.serialization.os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "two")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]
