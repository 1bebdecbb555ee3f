"""Folders of files by class: `<path>/<class>/*`, or `<path>/train/<class>/*` and `<path>/test/<class>/*`."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from math import log10
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from seqkit.data.equal_files import content_keys
from seqkit.data.formats import AUDIO, IMAGE, TEXT, own_reader
from seqkit.data.io import (
    WHITE_OF_16_BITS,
    audio_header,
    brightest_of_16_bits,
    image_header,
    read_audio,
    read_image,
    read_text,
)
from seqkit.data.notes import Caution
from seqkit.data.sample import Samples, Splits
from seqkit.data.source import DataSource
from seqkit.data.sources.table import SPLIT_NAMES, alike_classes, few
from seqkit.data.splits import stratified
from seqkit.data.tables.columns import lookalike
from seqkit.data.walk import Walked, suffix_of, walk
from seqkit.errors import DataError, UsageError, one_line
from seqkit.progress import track

log = logging.getLogger("seqkit")

LOOKED_AT = 20
"""Files of a folder whose values are looked at before training, one in so many."""

_WORDS = {"train": "training", "valid": "validation", "test": "test"}
_CHANNELS = {1: "mono", 2: "stereo"}


class _File(NamedTuple):
    """A file, by its name relative to the folder of the data, and its class; None: it is in no class folder."""

    name: str
    label: str | None


_Parts = dict[str, list[_File]]


class ClassFolder(DataSource):
    """Your own files, whose class is the folder that they are in; a subclass says which files, and how they are read.

    path: folder of the data. Its folders `train` and `test` or `val` are the splits (of these two alone, `val` is test;
    other names: `SPLIT_NAMES`); else `test_fraction` of each class is test, chosen by `seed`. Files in no class folder
    have no class, and are read where no file has one. skip_bad: most files to leave out because they cannot be read;
    above 0, each is read once beforehand.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    """Of the files, in lower case with the dot; none: any."""

    plural: ClassVar[str] = "files"

    read: Any
    """Reads a file, given its path; raises DataError for a faulty one."""

    header: Any
    """Reads cheaply what a file declares, given its path; raises DataError."""

    def __init__(self, path: str, *, test_fraction: float = 0.2, seed: int = 0, skip_bad: int = 0):
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction is {test_fraction}; give a number between 0 and 1, such as 0.2")
        if skip_bad < 0:
            raise ValueError(f"skip_bad is {skip_bad}; give the most files that may be left out, 0 or more")
        self.path, self.test_fraction, self.seed, self.skip_bad = path, test_fraction, seed, skip_bad

    @abstractmethod
    def described(self, headers: Sequence[Any]) -> str:
        """All headers in words."""

    def cautions(self, paths: Sequence[Path], headers: Sequence[Any]) -> Iterator[str]:
        """Sentences about the values of the files, from a few of them. By default none."""
        yield from ()

    def splits(self) -> Splits:
        """Files are read on access, and their headers now; class names are in alphabetical order.

        Logs what is read, how it is split, what is not read, by reason and suffix, and files of equal content.
        Raises DataError where there is no such folder, no file of the kind, a class without files, a test class unseen
        in training, a file that cannot be read beyond `skip_bad`, or one file alone in every class.
        """
        root = Path(self.path)
        if not root.is_dir():
            raise DataError(f"{root} is not a folder; give one that holds a folder of {self._formats} for each class")
        below = walk(root)
        folders = _split_folders(below)
        parts, skipped = self._files(root, below, folders)
        if "valid" in parts and "test" not in parts:
            parts["test"] = parts.pop("valid")
        parts, headers = self._readable(root, parts)
        names = _class_names(root, parts)
        rule = f"split by the folders {', '.join(sorted(folders.values()))}"
        if "test" not in parts:
            parts, rule = self._divided(root, parts["train"], names)
        if any(file.label is not None and file.name.count("/") > 2 - (not folders["train"]) for file in parts["train"]):
            rule += "; the class is the folder that a file is in"
        sizes = ", ".join(f"{len(files):,} {_WORDS[split]}" for split, files in parts.items())
        of = f"of {len(names)} {'class' if len(names) == 1 else 'classes'}" if names else "without classes"
        log.warning("%s: %s %s %s; %s; %s", root, sizes, self.plural, of, rule, self.described([*headers.values()]))
        if found := _counted(skipped):
            log.warning("%s: not read are %s", root, found)
        paths = [root / name for name in headers]
        for said in (*_equal_files(root, parts), *self.cautions(paths, [*headers.values()])):
            log.warning(Caution(f"{root}: {said}"))
        labels: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        advice = "" if self.skip_bad else "--data.skip_bad N leaves out up to N such files"
        made = {
            split: of_files([root / f.name for f in files], [labels.get(f.label) for f in files], self.read, advice)
            for split, files in parts.items()
        }
        return Splits(made["train"], made["test"], made.get("valid"), names or None, rule)

    @property
    def _formats(self) -> str:
        """Such files, by their suffixes, in words."""
        return f"{', '.join(suffix.removeprefix('.').upper() for suffix in self.suffixes)} files".lstrip()

    def _files(self, root: Path, below: Walked, folders: Mapping[str, str]) -> tuple[_Parts, Counter[str]]:
        """The files of each split with their classes, and the number of those that are not read, by reason."""
        skipped = below.skipped + Counter({"hidden": below.num_hidden})
        fits = {name: not self.suffixes or suffix_of(name) in self.suffixes for name in below.files}
        fitting = [name for name in below.files if fits[name]]
        skipped.update(suffix_of(name) or "without a suffix" for name in below.files if not fits[name])
        if not fitting:
            found = _counted(skipped)
            raise DataError(f"{root} holds no {self._formats}{found and f' (but {found})'}; give a folder of them")
        parts: _Parts = {}
        for split, folder in folders.items():
            start = f"{folder}/" if folder else ""
            inside = [name for name in fitting if name.startswith(start)]
            if not inside:
                raise DataError(f"{root / folder} holds no {self._formats}; add some or take the folder out")
            labelled = [name for name in inside if "/" in name[len(start) :]]
            used = {name[:i] for name in labelled for i, letter in enumerate(name) if letter == "/"}
            empty = [name for name in below.folders if name.startswith(start) and name not in used]
            if labelled and empty:
                more = f" ({len(empty) - 1} more folders hold none either)" if len(empty) > 1 else ""
                raise DataError(f"{root / empty[0]} holds no {self._formats}{more}; add some or take the folder out")
            parts[split] = [_File(name, name.split("/")[-2]) for name in labelled]
            parts[split] = parts[split] or [_File(name, None) for name in inside]
            skipped["in no class folder"] += len(inside) - len(parts[split])
        skipped["outside the folders of the splits"] = sum(
            not any(name.startswith(f"{folder}/") for folder in folders.values() if folder) for name in fitting
        ) * bool(folders["train"])
        return parts, skipped

    def _readable(self, root: Path, parts: _Parts) -> tuple[_Parts, dict[str, Any]]:
        """The splits without files that cannot be read, and the headers of the others by their names.

        Raises DataError where more than `skip_bad` of them cannot.
        """
        names = [file.name for files in parts.values() for file in files]
        headers: dict[str, Any] = {}
        reasons: list[str] = []
        for name in track(names, f"checking {self.plural}", len(names)):
            try:
                headers[name] = self.header(root / name)
                if self.skip_bad:
                    self.read(root / name)
            except DataError as error:
                headers.pop(name, None)
                reasons.append(str(error))
        if len(reasons) > self.skip_bad:
            raise DataError(
                f"{reasons[0]} ({len(reasons):,} of {len(names):,} files cannot be read; --data.skip_bad "
                f"{len(reasons)} leaves them out)"
            )
        if reasons:
            left_out = f"{len(reasons)} of {len(names)} files cannot be read and are left out"
            log.warning(Caution(f"{root}: {left_out}; the first: {one_line(reasons[0])}"))
        kept = {split: [file for file in files if file.name in headers] for split, files in parts.items()}
        for split, files in kept.items():
            if not files:
                raise DataError(f"{root}: no file of the {_WORDS[split]} split can be read; replace them")
        return kept, headers

    def _divided(self, root: Path, files: Sequence[_File], names: Sequence[str]) -> tuple[_Parts, str]:
        """Training and test, and the rule in words. Raises DataError where nothing would be left for test."""
        labels: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        train, test = stratified([labels.get(file.label) for file in files], self.test_fraction, self.seed)
        counts = Counter(file.label for file in files)
        single = [label for label, count in counts.items() if count == 1 and label is not None]
        if not test:
            one_each = f"each of its {len(names)} classes has one file" if names else "it has one file"
            raise DataError(
                f"{root}: {one_each}, and training and test need one each; add files, or make folders train and test"
            )
        if single:
            log.warning(
                "%s: %d of %d classes have one file alone, which stays in training (%s)",
                root, len(single), len(names), few(single),
            )  # fmt: skip
        of_each = "of each class " if names else ""
        rule = f"{100 * self.test_fraction:.0f} % {of_each}are test, SHA-256 with seed {self.seed}"
        return {"train": [files[i] for i in train], "test": [files[i] for i in test]}, rule


class ImageFolder(ClassFolder):
    """Your own images: `<path>/<class>/*.png|jpg|…`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    channels: 1 grey or 3 colours; None: the tokenizer's number. Images are resized when they are read, as the tokenizer
    does, so that augmentations work on small ones; those of a `Resize` with a larger size than crop stay as they are
    until then. path, test_fraction, seed, skip_bad: as of `ClassFolder`.
    """

    suffixes, plural, header = IMAGE.suffixes, "images", staticmethod(image_header)

    def __init__(
        self, path: str, *, channels: int | None = None, test_fraction: float = 0.2, seed: int = 0, skip_bad: int = 0
    ):
        super().__init__(path, test_fraction=test_fraction, seed=seed, skip_bad=skip_bad)
        self.channels, self._rule = channels, ""
        self.read = partial(_read_resized, channels=channels or 3, resized=None)

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer's channels and size. Raises UsageError where other channels were asked for."""
        from seqkit.tokenizers import Patches  # brings torchvision

        if not isinstance(tokenizer, Patches):
            return
        if self.channels not in (None, tokenizer.channels):
            raise UsageError(
                f"images are read with {self.channels} channels, and the tokenizer takes {tokenizer.channels}; give "
                f"--tokenizer.channels {self.channels}, or leave data.source.channels out"
            )
        resizing = tokenizer.resizing
        resized = tokenizer.resized if resizing and resizing.keeps_its_result else None  # others would be resized twice
        channels = tokenizer.channels if tokenizer.channels in (1, 3) else 3
        self.read = partial(_read_resized, channels=channels, resized=resized)
        if resizing is not None:
            part = "their middle is" if tokenizer.crop or resizing.crop else "they are"
            size = f"a shorter side of {resizing.size}" if tokenizer.size is None else "{} × {}".format(*tokenizer.size)
            self._rule = f"; {part} resized to {size} (--tokenizer.resize)"

    def described(self, headers: Sequence[tuple[int, int, bool]]) -> str:
        """Sizes of the images, and how many have transparency."""
        found = [(height, width) for height, width, _ in headers]
        small, large = (f"{h} × {w}" for h, w in (f(found, key=lambda size: size[0] * size[1]) for f in (min, max)))
        sizes = small if len(set(found)) == 1 else f"from {small} to {large}"
        num_transparent = sum(is_transparent for *_, is_transparent in headers)
        dropped = f"; the transparency of {num_transparent:,} is dropped" if num_transparent else ""
        colour = "in grey" if self.read.keywords["channels"] == 1 else "in colour"
        return f"{sizes} pixels, read {colour}{self._rule}{dropped}"

    def cautions(self, paths: Sequence[Path], headers: Sequence[Any]) -> Iterator[str]:
        """Images of 16 bits that use less than a sixteenth of them, as those of a camera of 12 bits do."""
        found = [value for path in _some(paths) if (value := _tried(brightest_of_16_bits, path)) is not None]
        if found and max(found) < WHITE_OF_16_BITS / 16:
            yield (
                f"images of 16 bit are dark: the largest value is {max(found):,} of {WHITE_OF_16_BITS:,} (in "
                f"{len(found)} of them); multiply the values, by 16 if they have 12 bits, and save them again"
            )


def _read_resized(path: Path, channels: int, resized: Callable[[Tensor], Tensor] | None) -> Tensor:
    image = read_image(path, channels)
    return image if resized is None else resized(image)


class AudioFolder(ClassFolder):
    """Your own recordings: `<path>/<class>/*.wav|flac|ogg|mp3`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    Recordings keep their rates, and the tokenizer resamples. path, test_fraction, seed, skip_bad: as of `ClassFolder`.
    """

    suffixes, plural = AUDIO.suffixes, "recordings"
    read, header = staticmethod(read_audio), staticmethod(audio_header)
    _rate: int | None = None
    _mixes = False

    def read_for(self, tokenizer: Any) -> None:
        """Keeps what the tokenizer does with rates and channels, for the log."""
        self._rate = getattr(tokenizer, "sample_rate", None)
        self._mixes = getattr(tokenizer, "channels", None) == "mix"

    def described(self, headers: Sequence[tuple[int, int, int]]) -> str:
        """Lengths, sample rates and channels of the recordings."""
        seconds = sorted(samples / rate for samples, rate, _ in headers)
        rates, channels = ({header[i] for header in headers} for i in (1, 2))
        is_resampled = self._rate is not None and rates != {self._rate}
        return (
            f"{seconds[0]:.3g} to {seconds[-1]:.3g} s, median {seconds[len(seconds) // 2]:.3g} s, "
            f"{' and '.join(_CHANNELS.get(c, f'{c} channels') for c in sorted(channels))}, "
            f"at {', '.join(map(str, sorted(rates)[:6]))}{', …' if len(rates) > 6 else ''} Hz"
            f"{f', resampled to {self._rate} Hz (--tokenizer.sample_rate)' if is_resampled else ''}"
        )

    def cautions(self, paths: Sequence[Path], headers: Sequence[tuple[int, int, int]]) -> Iterator[str]:
        """Recordings whose channels cancel each other when they are mixed, as of which one is the other's negative."""
        several = [path for path, (samples, _, c) in zip(paths, headers) if c > 1 and samples * c < 10_000_000]
        looked_at = _some(several) if self._mixes else []
        lost = [path for path in looked_at if (loss := _tried(_loss_of_mix, path)) is not None and loss > 20]
        if lost:
            yield (
                f"{len(lost)} of {len(looked_at)} recordings with several channels lose more than 20 dB where they are "
                f"mixed (first: {one_line(lost[0].name)}), as the channels cancel each other; --tokenizer.channels "
                "first takes one"
            )


def _loss_of_mix(path: Path) -> float:
    """How much quieter the mean of the channels is than they are, in dB."""
    samples = read_audio(path).samples.double()
    power, mixed = float((samples**2).mean()), float((samples.mean(dim=0) ** 2).mean())
    return 10 * log10(power / max(mixed, 1e-30)) if power else 0.0


class TextFolder(ClassFolder):
    """Your own UTF-8 texts by class: `<path>/<class>/*.txt|md`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    path, test_fraction, seed, skip_bad: as of `ClassFolder`; each text is read once beforehand.
    """

    suffixes, plural = TEXT.suffixes, "texts"
    read = staticmethod(read_text)

    def header(self, path: Path) -> int:
        """Number of characters."""
        return len(read_text(path))

    def described(self, headers: Sequence[int]) -> str:
        """Lengths of the texts."""
        low, high = min(headers), max(headers)
        return f"{low:,} characters each" if low == high else f"of {low:,} to {high:,} characters"


def _no_tokenizer(_: Path) -> Any:
    raise ValueError("FileFolder has no tokenizer yet; call read_for(tokenizer)")


class FileFolder(ClassFolder):
    """Your own files of any format: `<path>/<class>/*`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    They are read by the tokenizer's `read`, each once before training, so that a fault is found before it. path,
    test_fraction, seed, skip_bad: as of `ClassFolder`; a file may also be left out because a tokenizer without `fit`
    cannot encode it.
    """

    read = header = staticmethod(_no_tokenizer)

    def read_for(self, tokenizer: Any) -> None:
        """Take the tokenizer's `read`. Raises UsageError where it has none."""
        reader = own_reader(tokenizer)
        if reader is None:
            raise UsageError(
                f"{self.path} is read by the tokenizer's read(path), which {type(tokenizer).__name__} does not have; "
                "write it, or give another --tokenizer"
            )
        self.read, self.header = reader, reader.check

    def described(self, headers: Sequence[None]) -> str:
        """Who reads them."""
        return f"read by {self.read}"


@dataclass(frozen=True)
class _Files:
    """Files that are read on access. advice: what to do about a file that has a fault."""

    paths: Sequence[Path]
    read: Callable[[Path], Any]
    advice: str

    def raw(self, index: int) -> Any:
        try:
            return self.read(self.paths[index])
        except DataError as error:
            raise DataError(f"{error} ({self.advice})") if self.advice else error from error

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def key(self) -> str | None:
        """Fingerprint of paths, sizes, times of change, and the reader; None: what a reader does is not known."""
        digest = sha256()
        for path in self.paths:
            state = path.stat()
            digest.update(f"{path.absolute()}\0{state.st_size}\0{state.st_mtime_ns}\0".encode(errors="surrogatepass"))
        reader = getattr(self.read, "func", self.read)
        settings = getattr(self.read, "keywords", {})
        digest.update(f"{getattr(reader, '__qualname__', reader)} {sorted(settings.items())}".encode())
        return None if "<lambda>" in str(reader) or "<locals>" in str(reader) else digest.hexdigest()


def of_files(paths: Sequence[Path], labels: Sequence[Any], read: Callable[[Path], Any], advice: str = "") -> Samples:
    """Samples that are read from their files on access. advice: what to do about a file that has a fault."""
    files = _Files(paths, read, advice)
    return Samples(files.raw, labels, name=files.name, key=files.key)


def _split_folders(below: Walked) -> dict[str, str]:
    """The folder of each split, relative; `train` alone is "" where the data is not split by folders.

    A folder `train` that has no other split beside it is a class, as a car and a bus may be, unless it is the only
    folder and holds others.
    """
    top = [name for name in below.folders if "/" not in name]
    named: dict[str, str] = {}
    for name in top:
        if split := SPLIT_NAMES.get(name.lower()):
            if split in named:
                raise DataError(f"folders {named[split]} and {name} are both the {_WORDS[split]} split; join them")
            named[split] = name
    if "train" not in named:
        return {"train": ""}
    holds_folders = any(name.startswith(f"{named['train']}/") for name in below.folders)
    return named if len(named) > 1 or (len(top) == 1 and holds_folders) else {"train": ""}


def _class_names(root: Path, parts: _Parts) -> list[str]:
    """The classes of training. Raises DataError where another split has more, or a name is not UTF-8."""
    known = Counter(file.label for file in parts["train"])
    counts = {name: count for name, count in known.items() if name is not None}
    names = sorted(counts)
    if undecodable := [name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)]:
        raise DataError(f"{root} has a class folder whose name is not UTF-8, {one_line(undecodable[0])}; rename it")
    for name, label in (file for files in parts.values() for file in files):
        if (label is None) != (not names):
            raise DataError(f"{root / name} is in {'no' if label is None else 'a'} class folder, unlike training")
        if label not in known:
            raise DataError(
                f"{root} has class {one_line(label)!r}, which the training split does not have"
                f"{lookalike(str(label), names)}; it has: "
                f"{one_line(', '.join(names[:20]))}{', …' if len(names) > 20 else ''}"
            )
    if alike := alike_classes(counts):
        log.warning("%s: %s", root, alike)
    return names


def _equal_files(root: Path, parts: _Parts) -> Iterator[str]:
    """Sentences on files of equal content: in two classes, in training and test, and copies within training."""
    each = [(split, file) for split in sorted(parts, key=lambda split: split != "train") for file in parts[split]]
    first: dict[Hashable, tuple[str, _File]] = {}
    conflicts, shared, copies = [], [], []
    for (split, file), key in zip(each, content_keys([root / file.name for _, file in each])):
        first_split, equal = first.setdefault(key, (split, file))
        if equal.label != file.label:
            conflicts.append(file.name)
        if split == "test" and first_split == "train":
            shared.append(file.name)
        elif split == "train" and equal != file and equal.label == file.label:
            copies.append(file.name)
    if conflicts:
        one = one_line(conflicts[0])
        yield f"{len(conflicts):,} files have the content of another file in another class (first: {one}); take one out"
    if shared:
        many, one = f"{len(shared):,} of {len(parts['test']):,}", one_line(shared[0])
        yield f"{many} test files are in training, too (first: {one}), which flatters the result; take them out of one"
    if copies:
        many, one = f"{len(copies):,} of {len(parts['train']):,}", one_line(copies[0])
        yield f"{many} training files are copies of another one (first: {one}), so they count twice; take them out"


def _some(paths: Sequence[Path]) -> Sequence[Path]:
    """At most `LOOKED_AT` files, evenly from first to last."""
    return paths[:: -(-len(paths) // LOOKED_AT) or 1]


def _tried(look: Callable[[Path], Any], path: Path) -> Any:
    """What is found in a file; None: it cannot be read, which is said when it is."""
    try:
        return look(path)
    except DataError:
        return None


def _counted(skipped: Mapping[str, int]) -> str:
    """The number of files of each kind, in words; nothing where there are none."""
    found = [f"{count:,} {one_line(what)}" for what, count in Counter(skipped).most_common() if count]
    return ", ".join(found[:8]) + (f", and {len(found) - 8} more kinds" if len(found) > 8 else "")
