"""Names of all recipes that train one model: those of a mixture's tasks stand for the mixture."""

from collections.abc import Iterator

from seqkit.config import read_recipe, recipe_names


def single_recipes() -> Iterator[str]:
    """Yield `image/digits` and the like, and `mixture/four/text` for each task of a mixture."""
    for name in recipe_names():
        tasks = read_recipe(name)[0].get("tasks")
        yield from [name] if tasks is None else (f"{name}/{task}" for task in tasks)
