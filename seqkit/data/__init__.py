"""Data: sets by name, your own files, and the loaders that turn both into batches of tokens.

Importing this package imports nothing heavy; each name below brings its module when it is first used.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "audio": ("AudioFolder", "Fsdd", "SpokenDigits"),
    "augment": ("Gain", "Noise", "Shift", "SpectralTilt", "SpeedPerturb"),
    "download": ("data_folder", "fetch"),
    "files": ("read_audio", "read_image", "read_text"),
    "graph": ("Cora", "FreeSolv", "Karate", "SmilesTable", "Solubility"),
    "image": ("Cifar10", "Digits", "FashionMnist", "ImageFolder", "Mnist", "Mnist5k"),
    "loader": ("Data",),
    "pronunciation": ("CMUdict",),
    "source": ("Sample", "Source", "Splits", "stratified"),
    "text": ("Shakespeare", "TextFiles", "TinyShakespeare"),
}
__all__ = [name for names in _HOME.values() for name in names]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"seqkit.data.{module}"), name)
    raise AttributeError(f"module 'seqkit.data' has no attribute {name!r}")
