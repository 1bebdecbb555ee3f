"""Data sources: data sets known by name, and the user's own files. They know files and packages, and no tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from seqkit.data.sample import Splits
from seqkit.errors import DataError

Arguments = dict[str, Any]
"""Arguments of a source or of its columns, by name, as a configuration holds them."""


class DataSource(ABC):
    """A data set with its splits: one known by name, or the user's own files."""

    @abstractmethod
    def splits(self) -> Splits:
        """All samples, split. Raises DataError where files are missing or cannot be what they should be."""

    def read_for(self, tokenizer: Any) -> None:  # noqa: B027, only sources of files have something to do
        """Prepare for the tokenizer that encodes the samples; called by `DataModule` before `splits`.

        A source of files may read them as `predict` will. Raises UsageError if it was told to read otherwise.
        """

    def decided(self) -> Arguments:
        """Arguments that were left open and `splits` decided by the data; a run keeps them. By default none."""
        return {}


def check_test_fraction(fraction: float, below: float = 1) -> None:
    """Raise ValueError for what is no share of the examples that could be set aside for the test."""
    if not 0 < fraction < below:
        raise ValueError(
            f"test_fraction is {fraction}; give a number between 0 and {below}, such as 0.2"
        )


def check_skip_bad(number: int) -> None:
    """Raise ValueError for a number of examples that is below 0."""
    if number < 0:
        raise ValueError(f"skip_bad is {number}; give the most that may be left out, 0 or more")


def import_optional(module: str, extra: str) -> Any:
    """An optional package. Raises DataError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing_package(module.partition(".")[0], extra) from error


def optional_distribution(package: str, extra: str) -> Distribution:
    """An optional package whose files are read without importing it. Raises DataError that says how to install it."""
    try:
        return distribution(package)
    except PackageNotFoundError as error:
        raise _missing_package(package, extra) from error


def _missing_package(package: str, extra: str) -> DataError:
    return DataError(
        f'this data needs the package {package}, which is missing: pip install "seqkit[{extra}]"'
    )
