"""Speech Commands: recorded words of one second, as torchaudio lists them."""

from pathlib import Path

from seqkit.data import DataSource, Samples, Splits, read_audio
from seqkit.data.download import find, missing
from seqkit.data.file_samples import of_files
from seqkit.errors import DataError

FOLDER = "SpeechCommands/speech_commands_v0.02"
FETCH = "2.4 GB by torchaudio.datasets.SPEECHCOMMANDS('.', download=True), in that data folder"


class SpeechCommands(DataSource):
    """`speech-commands`: 105,829 recordings of 35 words at 16 kHz (version 2), split by the official lists.

    A speaker is in one split only, and is the group of the recordings. Warden 2018.
    """

    def splits(self) -> Splits:
        """Recordings are read on access. Raises DataError where they or the lists are not there."""
        from torchaudio.datasets import SPEECHCOMMANDS

        folder = find(FOLDER)
        if folder is None:
            raise missing(FOLDER, FETCH)
        found = dict[str, list[tuple[Path, str, str]]]()
        for split in ("training", "testing", "validation"):
            try:
                files = SPEECHCOMMANDS(folder.parents[1], subset=split)
                known = [files.get_metadata(i) for i in range(len(files))]
            except (OSError, ValueError) as error:  # no list, or a name without a speaker
                raise DataError(
                    f"{folder} is not Speech Commands ({error}); put there {FETCH}"
                ) from error
            found[split] = [
                (folder.parent / path, word, speaker) for path, _, word, speaker, _ in known
            ]
        names = sorted({word for _, word, _ in found["training"]})
        train, test, valid = (_samples(recordings, names) for recordings in found.values())
        return Splits(train, test, valid, names)


def _samples(recordings: list[tuple[Path, str, str]], names: list[str]) -> Samples:
    paths, words, speakers = zip(*recordings) if recordings else ((), (), ())
    if unknown := set(words) - set(names):
        raise DataError(f"no recording of {min(unknown)!r} is for training; put there {FETCH}")
    files = of_files(paths, [names.index(word) for word in words], read_audio)
    return Samples(files.read, files.labels, groups=speakers, name=files.name, key=files.key)
