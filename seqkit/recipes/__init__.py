"""Data sets beside their recipes, as a package: `seqkit.recipes.image.digits` is the file `recipes/image/digits.py`."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
if (_PACKAGE / "_recipes").is_dir():
    FOLDER = _PACKAGE / "_recipes"
else:
    FOLDER = _PACKAGE.parent / "recipes"
"""Folder of the recipes: inside an installed package, or beside it in a checkout."""

__path__ = [str(FOLDER)]
