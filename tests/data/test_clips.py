"""Videos: every format gives the same frames, only sampled ones are decoded, damaged files are named."""

import contextlib
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from seqkit.data import clips
from seqkit.data.clips import clip_header, holds_clips, read_clip
from seqkit.errors import DataError
from seqkit.tokenizers.video import Tubelets


def drawn(num_frames, size=(6, 9)):
    """Frames of 8 bits, each of two greys, which GIFs keep."""
    rng = np.random.default_rng(num_frames)
    return [
        np.where(rng.random(size) < 0.5, 7 * i % 251, 255).astype(np.uint8)
        for i in range(num_frames)
    ]


def gif(path, frames):
    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:])
    return path


def folder(path, frames, name="frame{}.png"):
    path.mkdir(parents=True)
    for i, frame in enumerate(frames):
        Image.fromarray(frame).save(path / name.format(i))
    return path


def mp4(path, frames, **options):
    av = pytest.importorskip("av", reason="MP4 is read by PyAV: pip install 'seqkit[video]'")
    with av.open(str(path), "w", **options) as file:
        stream = file.add_stream("mpeg4", rate=25, options={"g": "10", "b": "4000000"})
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape, "yuv420p"
        for frame in [
            av.VideoFrame.from_image(Image.fromarray(frame).convert("RGB")) for frame in frames
        ]:
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


def every(num_frames):
    return range(num_frames)


def test_a_gif_and_a_folder_hold_the_frames_in_order(tmp_path):
    frames = drawn(13)
    expected = torch.stack([torch.from_numpy(frame)[None] / 255 for frame in frames])
    # frame10 follows frame9
    assert torch.equal(read_clip(folder(tmp_path / "a", frames), 1, every), expected)
    assert torch.equal(read_clip(gif(tmp_path / "a.gif", frames), 1, every), expected)
    assert read_clip(tmp_path / "a.gif", 3, lambda n: [n - 1]).equal(
        expected[-1:].expand(1, 3, -1, -1)
    )


def test_frames_of_one_number_have_an_order_that_no_folder_decides(tmp_path, monkeypatch):
    place = folder(tmp_path / "a", drawn(1), "1.png")
    folder(tmp_path / "b", [frame // 2 for frame in drawn(1)], "01.png")
    (tmp_path / "b" / "01.png").rename(place / "01.png")
    wanted = read_clip(place, 1, every)
    listed = type(place).iterdir
    monkeypatch.setattr(type(place), "iterdir", lambda self: reversed(list(listed(self))))
    assert read_clip(place, 1, every).equal(wanted)


def test_sampled_frames_of_an_mp4_are_those_of_all(tmp_path):
    path = mp4(tmp_path / "a.mp4", [np.full((16, 32), 5 * i, np.uint8) for i in range(47)])
    whole = read_clip(path, 1, every)
    assert clip_header(path) == len(whole) == 47
    assert (whole.mean(dim=(1, 2, 3)) * 255 - 5 * torch.arange(47)).abs().max() < 3
    some = [0, 3, 4, 29, 30, 46]
    assert torch.equal(read_clip(path, 1, lambda _: some), whole[some])


@pytest.fixture
def decoded(monkeypatch):
    """Counts the frames that are decoded."""
    count = []
    for name in ("_tensor", "read_image"):
        own = getattr(clips, name)
        monkeypatch.setattr(clips, name, lambda *given, own=own: count.append(given) or own(*given))
    return count


@pytest.mark.parametrize("write", [gif, folder])
def test_of_a_video_of_1000_frames_the_sampled_ones_alone_are_decoded(write, decoded, tmp_path):
    path = write(tmp_path / "long.gif", drawn(1000, (2, 3)))
    assert len(read_clip(path, 1, Tubelets((2, 2, 3), frames=8).sample)) == len(decoded) == 8


def test_an_mp4_of_1000_frames_is_decoded_from_the_key_frame_before_each_sampled_one(
    decoded, tmp_path, monkeypatch
):
    path = mp4(tmp_path / "long.mp4", [np.full((16, 16), i % 256, np.uint8) for i in range(1000)])
    count, av = [], pytest.importorskip("av")

    class Counted:
        def __init__(self, container):
            self.own, self.streams, self.demux, self.seek = (
                container,
                container.streams,
                container.demux,
                container.seek,
            )

        def decode(self, stream):
            return (count.append(frame.pts) or frame for frame in self.own.decode(stream))

    opened = av.open
    monkeypatch.setattr(
        av,
        "open",
        lambda *given, **settings: contextlib.nullcontext(Counted(opened(*given, **settings))),
    )
    assert len(read_clip(path, 1, Tubelets((2, 2, 2), frames=8).sample)) == len(decoded) == 8
    assert len(count) <= 8 * 10  # a key frame each ten


def test_a_rotated_phone_video_stands_upright(tmp_path):
    av = pytest.importorskip("av", reason="MP4 is read by PyAV: pip install 'seqkit[video]'")
    left = np.zeros((16, 32), np.uint8)
    left[:, :16] = 255
    path = mp4(tmp_path / "a.mp4", [left] * 3)
    data = bytearray(path.read_bytes())
    # version and flags; times, track, duration; reserved, layer, volume
    at = data.index(b"tkhd") + 4 + 4 + 20 + 16
    identity = bytes(data[at : at + 36])
    assert identity == b"".join(
        int(x).to_bytes(4, "big") for x in (65536, 0, 0, 0, 65536, 0, 0, 0, 2**30)
    )
    turned = (0, 65536, 0, 2**32 - 65536, 0, 0, 16 * 65536, 0, 2**30)  # 90° clockwise
    data[at : at + 36] = b"".join(int(x).to_bytes(4, "big") for x in turned)
    path.write_bytes(data)
    with av.open(str(path)) as file:
        assert next(file.decode(video=0)).rotation == -90
    (frame,) = read_clip(path, 1, lambda _: [1])
    assert frame.shape == (1, 32, 16)
    assert frame[0, :16].mean() > 0.9 > 0.1 > frame[0, 16:].mean()


def cut(path, share=0.6):
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    return path


HOSTILE = {
    "a GIF of one frame": (lambda p: gif(p / "x.gif", drawn(1)), "x.gif has 1 frame"),
    "a truncated GIF": (lambda p: cut(gif(p / "x.gif", drawn(9))), "x.gif is truncated"),
    "an empty folder": (lambda p: folder(p / "x", []), "x holds no frames"),
    "a playlist called MP4": (lambda p: (p / "x.mp4").write_text("#EXTM3U\nx.ts") and p / "x.mp4", "no video"),
    "an empty file": (lambda p: (p / "x.mp4").touch() or p / "x.mp4", "x.mp4 is empty"),
    "no file": (lambda p: p / "x.mp4", "x.mp4 does not exist"),
    "an MP4 without its index": (lambda p: cut(mp4(p / "x.mp4", drawn(30, (16, 16)))), "x.mp4 cannot be read"),
    "an MP4 whose index comes first, truncated": (
        lambda p: cut(mp4(p / "x.mp4", drawn(30, (16, 16)), container_options={"movflags": "faststart"}), 0.8),
        "x.mp4 is truncated",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line_that_names_it(name, tmp_path):
    make, fact = HOSTILE[name]
    with pytest.raises(DataError, match=fact) as error:
        read_clip(make(tmp_path), 1, Tubelets((4, 2, 3)).sample)
    assert "\n" not in str(error.value)


def test_frames_of_unlike_sizes_are_named_before_any_is_decoded(decoded, tmp_path):
    path = folder(tmp_path / "x", [*drawn(7), *drawn(1, (6, 8))])
    with pytest.raises(DataError, match=r"frame7.png is 6 × 8 pixels"):
        read_clip(path, 1, lambda _: [0, 1])
    assert not decoded


def test_without_pyav_an_mp4_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    (tmp_path / "x.mp4").write_bytes(b"\0\0\0\x20ftypisom")
    with pytest.raises(DataError, match=r"x.mp4 .*seqkit\[video\]"):
        read_clip(tmp_path / "x.mp4", 1, every)


def test_a_run_on_images_takes_no_video(tmp_path):
    with pytest.raises(DataError, match=r"x.gif is a video"):
        read_clip(gif(tmp_path / "x.gif", drawn(3)))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a/1.mp4", "a/thumb.png"], True),
        (["a/c1/f_01.png", "a/c1/f_02.png", "b/c2/f_8.png", "b/c2/f_9.png"], True),
        (["train/a/c1/1.png", "train/a/c1/2.png", "test/a/c1/1.png", "test/a/c1/2.png"], True),
        (["a/1.png", "a/2.png"], False),
        (["train/a/1.png", "train/a/2.png"], False),
        (["animals/dogs/rex.png", "animals/dogs/fido.png"], False),
        (["a/c1/1.png", "a/c1/5.png"], False),
        (["2020/cat/1.png", "2020/cat/2.png", "2020/cat/3.jpg"], False),  # of two sizes
        (["a/1.wav"], False),
        ([], False),
    ],
)
def test_folders_of_videos_are_told_from_folders_of_images(names, expected, tmp_path):
    for name in (name for name in names if not name.endswith((".mp4", ".wav"))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8 + name.endswith("jpg"))).save(tmp_path / name)
    assert holds_clips(tmp_path, names) is expected


@pytest.mark.parametrize(("num_frames", "expected"), [(1, False), (2, True)])
def test_gifs_are_videos_where_they_move(num_frames, expected, tmp_path):
    gif(tmp_path / "x.gif", drawn(num_frames))
    assert holds_clips(tmp_path, ["x.gif"]) is expected
    assert not holds_clips(tmp_path, ["x.gif", "y.png"])
