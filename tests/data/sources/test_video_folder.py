"""Folders of videos: files and folders of frames, read as `predict` reads them, faults named before training."""

import logging

import pytest
import torch
from test_clips import drawn, folder, gif

from seqkit.cli.guess import RECIPES
from seqkit.data.clips import VideoFolder
from seqkit.data.formats import source_for
from seqkit.data.inputs import Inputs
from seqkit.data.sources.pairs import Pairs
from seqkit.data.tables.schema import Column, Schema
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch
from seqkit.registry import find
from seqkit.tokenizers import Join, LogMel
from seqkit.tokenizers.video import Tubelets

TOKENIZER = Tubelets((2, 3, 3), frames=4, resize=(6, 9))


def filled(path, num_each=3):
    """Two classes: GIFs, and folders of frames."""
    (path / "still").mkdir(parents=True)
    for i in range(num_each):
        gif(path / "still" / f"{i}.gif", drawn(5 + i))
        folder(path / "wave" / f"clip.{i}", drawn(9 + i))
    return path


def split(path, **settings):
    source = VideoFolder(str(path), test_fraction=0.4, **settings)
    source.read_for(TOKENIZER)
    return source.splits()


def test_files_and_folders_of_frames_are_videos_of_the_class_above(tmp_path, caplog):
    splits = split(filled(tmp_path))
    assert splits.names == ["still", "wave"]
    assert {one.raw.shape for one in (*splits.train, *splits.test)} == {(4, 1, 6, 9)}
    assert "4 training, 2 test videos of 2 classes" in caplog.text
    assert "of 5 to 11 frames" in caplog.text


def test_predict_reads_a_video_as_training_did_alone_and_in_a_folder(tmp_path):
    splits = split(filled(tmp_path))
    for one in (*splits.train, *splits.test):
        (found,) = Inputs([one.name], TOKENIZER)
        assert torch.equal(found.raw, one.raw)
    found = [*Inputs([str(tmp_path)], TOKENIZER)]
    assert [one.error for one in found] == [None] * 6
    assert {one.name for one in found} == {one.name for one in (*splits.train, *splits.test)}


def test_a_table_names_videos(tmp_path):
    gif(tmp_path / "a.gif", drawn(5))
    (tmp_path / "t.csv").write_text("clip\na.gif\nb.gif\n")
    schema = Schema((Column("clip", "video"),), "none")
    good, bad = Inputs([str(tmp_path / "t.csv")], TOKENIZER, schema)
    assert good.raw.shape == (4, 1, 6, 9)
    assert "b.gif" in bad.error


def test_a_video_that_is_too_short_is_named_before_training_or_left_out(tmp_path):
    gif(filled(tmp_path) / "still" / "short.gif", drawn(1))
    with pytest.raises(DataError, match=r"still/short.gif has 1 frame"):
        split(tmp_path)
    assert not any(one.name.endswith("short.gif") for one in split(tmp_path, skip_bad=1).train)


@pytest.mark.parametrize("made", ["hop", "wave/clip9"])
def test_an_empty_folder_is_named(made, tmp_path):
    (filled(tmp_path) / made).mkdir(parents=True)
    with pytest.raises(DataError, match=f"{made} holds no"):
        split(tmp_path)


def test_equal_folders_of_frames_in_training_and_test_are_said(tmp_path, caplog):
    for part in ("train", "test"):
        folder(tmp_path / part / "wave" / f"in {part}", drawn(4))
        folder(tmp_path / part / "hop" / f"in {part}", drawn(6 if part == "train" else 7))
    with caplog.at_level(logging.WARNING):
        split(tmp_path)
    assert "1 of 2 test files are in training" in caplog.text


def test_a_frame_that_is_written_anew_is_another_video_to_the_cache(tmp_path):
    before = split(filled(tmp_path)).train.key()
    assert split(tmp_path).train.key() == before
    for clip in (tmp_path / "wave").iterdir():
        (clip / "frame3.png").write_bytes((clip / "frame4.png").read_bytes())
    assert split(tmp_path).train.key() != before


def test_a_folder_of_videos_has_its_recipe(tmp_path):
    source, arguments = source_for(filled(tmp_path))
    assert (RECIPES[source][0], arguments) == ("video/classify", {"path": str(tmp_path)})


def test_videos_and_sounds_are_parts_of_one_example():
    video = find("data_source", "moving-digits").load()(label="digit")
    splits = Pairs(
        {"video": video, "sound": find("data_source", "spoken-digits").load()()}
    ).splits()
    tokenizer = Join({"video": Tubelets((4, 8, 8), frames=8), "sound": LogMel(8000, num_mels=7)})
    tokens = [tokenizer.encode(splits.train[i].raw) for i in range(2)]
    assert [[name for name, _ in one.parts] for one in tokens] == [["video", "sound"]] * 2
    assert tokens[0].positions.shape[1] == tokenizer.spec.num_axes == 3
    TokenBatch.collate(tokens)
