"""Data sets beside their recipes, as a package: `seqkit.recipes.image.digits` is the file `recipes/image/digits.py`."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
FOLDER = _PACKAGE / "_recipes" if (_PACKAGE / "_recipes").is_dir() else _PACKAGE.parent / "recipes"
"""Folder of the recipes: inside an installed package, or beside it in a checkout."""

__path__ = [str(FOLDER)]
