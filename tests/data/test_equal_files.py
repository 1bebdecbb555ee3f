"""Files of equal content are found, and few are read."""

from pathlib import Path

from seqkit.data.equal_files import content_keys


def test_keys_are_equal_where_the_bytes_are(tmp_path, monkeypatch):
    contents = [b"a", b"b", b"a", b"long", b"0" * 70_000 + b"a", b"0" * 70_000 + b"b", b"0" * 70_000 + b"a"]
    paths = [tmp_path / str(i) for i in range(len(contents))]
    for path, content in zip(paths, contents):
        path.write_bytes(content)
    opened = []
    given = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *mode: opened.append(path) or given(path, *mode))
    keys = content_keys(paths)
    assert paths[3] not in opened
    for i, one in enumerate(contents):
        assert [key == keys[i] for key in keys] == [content == one for content in contents]


def test_a_file_that_cannot_be_read_equals_no_other(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    assert len(set(content_keys([tmp_path / "gone", tmp_path / "lost", tmp_path / "a"]))) == 3
