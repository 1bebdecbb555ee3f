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


def test_hidden_files_and_folders_of_the_system_are_counted(tmp_path):
    make(tmp_path, "a/1", ".a/1", "a/.b", "__MACOSX/a/1", "a/.ipynb_checkpoints/1-checkpoint")
    found = walk(tmp_path)
    assert (found.files, found.num_hidden) == (["a/1"], 4)


def test_a_link_is_read_where_it_leads_to_a_file_of_the_folder(tmp_path):
    make(tmp_path, "own/z/1", "far/2", "far/3")
    own = tmp_path / "own"
    (own / "a").symlink_to(own / "z")
    (own / "b").symlink_to(tmp_path / "far")
    (own / "z" / "loop").symlink_to(own)
    (own / "z" / "2").symlink_to("1")
    (own / "z" / "3").symlink_to("../../far/2")
    (own / "z" / "4").symlink_to(tmp_path / "far" / "3")
    (tmp_path / "other").symlink_to(own)
    for root in (own, tmp_path / "other"):
        found = walk(root)
        assert found.files == ["z/1", "z/2"]
        assert found.skipped == {"link to a folder": 3, "link out of the folder": 2}


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
