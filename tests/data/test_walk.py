import os

from seqkit.data.walk import suffix_of, walk


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("content")


def test_files_and_folders_are_those_of_the_standard_library(tmp_path):
    make(tmp_path, "b/2.txt", "b/1.txt", "a-c/x", "a/y", "a/z/d", "top")
    found = walk(tmp_path)
    below = [path.relative_to(tmp_path) for path in sorted(tmp_path.rglob("*"))]
    assert found.files == [str(path) for path in below if (tmp_path / path).is_file()]
    assert found.folders == [str(path) for path in below if (tmp_path / path).is_dir()]


def test_hidden_files_and_folders_of_the_system_are_counted_and_listed_when_asked_for(tmp_path):
    make(tmp_path, "a/1", ".a/1", "a/.b", "__MACOSX/a/1")
    found = walk(tmp_path)
    assert (found.files, found.num_hidden) == (["a/1"], 3)
    assert sorted(walk(tmp_path, hidden=True).files) == [".a/1", "__MACOSX/a/1", "a/.b", "a/1"]


def test_a_folder_is_read_where_it_is_and_not_where_links_show_it(tmp_path):
    make(tmp_path, "z/1", "far/2")
    (tmp_path / "own").mkdir()
    (tmp_path / "z").rename(tmp_path / "own" / "z")
    (tmp_path / "own" / "a").symlink_to(tmp_path / "own" / "z")
    (tmp_path / "own" / "b").symlink_to(tmp_path / "far")
    (tmp_path / "own" / "z" / "loop").symlink_to(tmp_path / "own")
    found = walk(tmp_path / "own")
    assert found.files == ["b/2", "z/1"]
    assert found.skipped == {"link to a folder that is read already": 2}


def test_what_is_no_file_is_counted_by_its_kind(tmp_path):
    make(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    found = walk(tmp_path)
    assert found.files == ["a"]
    assert found.skipped == {"FIFO": 1, "device": 1, "broken link": 2}


def test_no_more_files_are_listed_than_asked_for(tmp_path):
    make(tmp_path, *(f"{i}/{j}" for i in range(5) for j in range(5)))
    assert len(walk(tmp_path, limit=7).files) == 7


def test_a_suffix_is_in_lower_case_and_a_dot_in_front_begins_none():
    names = ("a/b.PNG", "a.b/c", ".png", "a.tar.gz")
    assert [suffix_of(name) for name in names] == [".png", "", "", ".gz"]
