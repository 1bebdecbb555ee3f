"""The gallery: an example of each recipe as tokens, drawn by `seqkit inspect`, and pages that seqkit writes."""

from __future__ import annotations

import logging
from pathlib import Path
from textwrap import indent

import yaml

from docs.website.stage import PAGES

log = logging.getLogger("docs")

GIVEN = {"own/classify": "To be, or not to be: that is the question."}
"""Examples of recipes that have no data of their own."""


def write_gallery(to: Path = PAGES) -> None:
    """Draw a training example of each recipe, and write gallery.md with the pictures."""
    from seqkit.config import complete, find_recipe, recipe_names
    from seqkit.errors import DataError
    from seqkit.report.inspect import inspect

    (to / "gallery").mkdir(parents=True, exist_ok=True)
    parts = [HEAD]
    for name in recipe_names():
        text = find_recipe(name)[1].read_text(encoding="utf-8")
        recipe = yaml.safe_load(text)
        task = f"/{next(iter(recipe['tasks']))}" if "tasks" in recipe else ""
        preset = "debug" if "debug" in recipe.get("presets", {}) else None
        picture = f"gallery/{name.replace('/', '-')}.png"
        try:
            inspect(complete(f"{name}{task}", preset, {}), to / picture, given=GIVEN.get(name))
        except DataError as error:  # its data set is not packaged, and not at hand
            log.warning("the gallery goes without %s: %s", name, error)
            continue
        parts += [
            f"## {name}",
            text.partition("\n")[0].removeprefix("# "),
            f"![An example of {name} as tokens]({picture})",
            f'??? note "{name}.yaml"\n\n' + indent(f"```yaml\n{text}```", "    "),
        ]
    (to / "gallery.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


HEAD = """# Gallery

Here you see what seqkit makes of your data before you train, and the pages that it writes after. Each page is one HTML
file. It needs no network and no server, so you can mail it.

| page | command |
|---|---|
| [report of a run](notebooks/first-run/runs-first-report.html) | `seqkit fit` |
| [attention maps](notebooks/first-run/seen-attention.html) | `seqkit attention` |
| [a published comparison](comparisons/screen-associative-recall/report.html) | `seqkit compare` |

The first two come from [the first run](notebooks/first-run.md), the last from [associative
recall](comparisons/screen-associative-recall.md).

The pictures below are what `seqkit inspect RECIPE` draws: one training example of each recipe, as tokens. They are of
the preset `debug` where a recipe has it, and of the first task of a mixture."""
