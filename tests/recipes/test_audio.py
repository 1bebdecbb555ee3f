from collections import Counter

import numpy as np
import pytest
import soundfile

from seqkit.errors import DataError
from seqkit.recipes.audio.digit_strings import DigitStrings, take_of
from seqkit.recipes.audio.fsdd import Fsdd
from seqkit.recipes.audio.speech_commands import FOLDER, SpeechCommands
from seqkit.recipes.audio.spoken_digits import TEST_VOICES, TRAIN_VOICES, SpokenDigits


@pytest.mark.slow
def test_fsdd_official_split_tests_the_first_five_takes(shared_data):
    splits = Fsdd().splits()
    assert (len(splits.train), len(splits.test)) == (2700, 300)
    assert Counter(s.label for s in splits.test) == dict.fromkeys(range(10), 30)
    assert {s.raw.sample_rate for s in splits.train} == {8000}


@pytest.mark.parametrize("takes", [0, -1, 1001, 10**12])
def test_takes_that_nobody_could_wait_for_are_refused(takes):
    with pytest.raises(ValueError, match=f"takes is {takes}"):
        SpokenDigits(takes=takes)


def write_fsdd(folder, speakers=("ann", "bob"), takes=7):
    folder.mkdir(parents=True)
    for k, speaker in enumerate(speakers):
        for digit in range(2):
            for take in range(takes):
                soundfile.write(
                    folder / f"{digit}_{speaker}_{take}.wav",
                    np.full(100 * (k + 1) + take, 0.1),
                    8000,
                )
    return str(folder)


def test_fsdd_leaves_one_speaker_out(tmp_path):
    folder = write_fsdd(tmp_path / "r")
    splits = Fsdd("bob", folder=folder).splits()
    assert {s.raw.samples.shape[1] // 100 for s in splits.train} == {1}
    assert {s.raw.samples.shape[1] // 100 for s in splits.test} == {2}
    assert splits.test.groups is None  # one speaker is no sample of speakers
    official = Fsdd(folder=folder).splits()
    assert official.test.groups == [
        "ann" if s.raw.samples.shape[1] < 200 else "bob" for s in official.test
    ]
    assert {s.raw.samples.shape[1] % 100 for s in official.test} == {0, 1, 2, 3, 4}
    assert {s.raw.samples.shape[1] % 100 for s in official.train} == {5, 6}


def test_strings_of_digits_take_every_recording_of_a_speaker_once_a_round(tmp_path):
    folder = write_fsdd(tmp_path / "r", takes=13)  # takes 0 to 4 are test, 5 to 9 validation
    source = DigitStrings(folder=folder, rounds=2)
    splits, again = source.splits(), source.splits()
    for split, takes, rounds in (
        ("train", (10, 11, 12), 2),
        ("valid", range(5, 10), 1),
        ("test", range(5), 1),
    ):
        strings, same = getattr(splits, split), getattr(again, split)
        names = Counter(name for one in strings for name in one.name.split())
        assert names == {
            f"{d}_{s}_{take}.wav": rounds for d in (0, 1) for s in ("ann", "bob") for take in takes
        }
        for string, other in zip(strings, same, strict=True):
            known = string.name.split()
            assert string.label.split() == [("zero", "one")[int(name[0])] for name in known]
            assert {name.split("_")[1] for name in known} == {string.group}
            assert len(known) <= 7
            length = sum(
                100 * (1 + (string.group == "bob")) + take_of(string._replace(name=name))
                for name in known
            )
            assert length <= string.raw.samples.shape[1] <= length + (len(known) - 1) * 3200
            assert (string.raw.samples == other.raw.samples).all()
    held_out = DigitStrings(held_out="bob", folder=folder).splits()
    assert {one.name.split("_")[1] for one in held_out.test} == {"bob"}
    assert {one.group for one in [*held_out.train, *held_out.valid]} == {"ann"}
    for settings in (
        {"digits": "tsdd"},
        {"digits": "spoken-digits", "held_out": "bob"},
        {"rounds": 0},
    ):
        with pytest.raises(ValueError, match=r"choose 'fsdd'|are of FSDD|give 1 to 1000"):
            DigitStrings(**settings)


def test_fsdd_names_what_is_wrong(tmp_path, own_folder):
    with pytest.raises(DataError, match=r"git clone .*SEQKIT_DATA"):
        Fsdd().splits()
    folder = write_fsdd(own_folder / "fsdd" / "recordings")
    with pytest.raises(DataError, match=r"28 .*3,000"):
        Fsdd().splits()
    with pytest.raises(ValueError, match=r"no speaker 'bobb' to hold out"):
        Fsdd("bobb", folder=folder).splits()
    soundfile.write(own_folder / "fsdd" / "recordings" / "ten_bob_1.wav", np.full(9, 0.1), 8000)
    with pytest.raises(DataError, match=r"ten_bob_1\.wav is not named"):
        Fsdd(folder=folder).splits()


def test_spoken_digits_test_voices_are_never_heard_in_training():
    assert not set(TRAIN_VOICES) & set(TEST_VOICES)
    assert (len(TRAIN_VOICES), len(TEST_VOICES)) == (48, 12)


def test_spoken_digits_are_made_once_and_come_out_the_same(own_folder, monkeypatch):
    monkeypatch.setattr("seqkit.recipes.audio.spoken_digits.TRAIN_VOICES", ("f3", "m1"))
    monkeypatch.setattr("seqkit.recipes.audio.spoken_digits.TEST_VOICES", ("klatt",))
    splits = SpokenDigits(takes=2).splits()
    assert (len(splits.train), len(splits.test)) == (40, 20)
    assert Counter(s.label for s in splits.test) == dict.fromkeys(range(10), 2)
    made = [s.raw.samples for s in splits.train]
    assert all(0.1 < len(x[0]) / 8000 < 2 and 0.01 < x.abs().max() <= 1 for x in made)
    (file,) = (own_folder / "spoken-digits").iterdir()

    def unwanted(plan):
        raise AssertionError("synthesised again")

    with monkeypatch.context() as patched:
        patched.setattr("seqkit.recipes.audio.spoken_digits._synthesised", unwanted)
        assert all(
            (a == s.raw.samples).all()
            for a, s in zip(made, SpokenDigits(takes=2).splits().train, strict=True)
        )
    file.write_bytes(file.read_bytes()[:999])  # a damaged cache is made again, byte for byte
    assert all(
        (a == s.raw.samples).all()
        for a, s in zip(made, SpokenDigits(takes=2).splits().train, strict=True)
    )


def test_two_takes_of_a_digit_differ(own_folder, monkeypatch):
    monkeypatch.setattr("seqkit.recipes.audio.spoken_digits.TRAIN_VOICES", ("f3",))
    monkeypatch.setattr("seqkit.recipes.audio.spoken_digits.TEST_VOICES", ("m1",))
    splits = SpokenDigits(takes=2).splits()
    train, test = splits.train, splits.test
    assert train[0].label == train[1].label
    assert train[0].raw.samples.shape != train[1].raw.samples.shape
    assert train[0].raw.samples.shape != test[0].raw.samples.shape


def test_an_unknown_voice_is_an_error(own_folder, monkeypatch):
    monkeypatch.setattr("seqkit.recipes.audio.spoken_digits.TRAIN_VOICES", ("nobody",))
    with pytest.raises(DataError, match=r"no voice '.*\+nobody'"):
        SpokenDigits(takes=1).splits()
    assert not list(own_folder.rglob("*.npz"))
    with pytest.raises(ValueError, match="takes is 0"):
        SpokenDigits(takes=0)


def test_speech_commands_splits_by_the_official_lists_and_groups_by_speaker(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="SPEECHCOMMANDS"):
        SpeechCommands().splits()
    folder, lists = tmp_path / FOLDER, {"validation_list.txt": [], "testing_list.txt": []}
    for word in ("no", "yes", "_background_noise_"):
        (folder / word).mkdir(parents=True)
        for speaker, held in (
            ("ann", None),
            ("bob", "validation_list.txt"),
            ("cat", "testing_list.txt"),
        ):
            for take in range(2):
                name = f"{word}/{speaker}_nohash_{take}.wav"
                soundfile.write(folder / name, np.full(101, 0.1), 16_000)
                if held and word != "_background_noise_":
                    lists[held].append(name)
    with pytest.raises(DataError, match=r"validation_list\.txt"):
        SpeechCommands().splits()
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines))
    splits = SpeechCommands().splits()
    assert splits.names == ["no", "yes"]
    for samples, speaker in ((splits.train, "ann"), (splits.valid, "bob"), (splits.test, "cat")):
        assert (
            sorted(zip(samples.labels, samples.groups)) == [(0, speaker)] * 2 + [(1, speaker)] * 2
        )
    assert splits.train[0].raw.sample_rate == 16_000
    assert splits.train.name(0).endswith("ann_nohash_0.wav")
