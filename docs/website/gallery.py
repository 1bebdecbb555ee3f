"""The gallery: an example of each recipe as tokens, drawn by `seqkit inspect`, and pages that seqkit writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from docs.website.stage import PAGES, ROOT, write_changed

GIVEN = {"own/classify": "To be, or not to be: that is the question."}
"""Examples of recipes that have no data of their own."""

RESULTS = ROOT / "docs" / "comparisons" / "digits" / "results.json"
"""The published comparison whose page is written from its results."""


def drawn(folder: Path) -> None:
    """Draw a training example of each recipe, and write the page of a published comparison."""
    from seqkit.config import complete, find_recipe, recipe_names
    from seqkit.report.comparison import write_comparison
    from seqkit.report.inspect import inspect

    for name in recipe_names():
        raw: dict[str, Any] = yaml.safe_load(find_recipe(name)[1].read_text(encoding="utf-8"))
        task = f"/{next(iter(raw['tasks']))}" if "tasks" in raw else ""
        preset = "debug" if "debug" in raw.get("presets", {}) else None
        config = complete(f"{name}{task}", preset, {})
        inspect(config, folder / f"{name.replace('/', '-')}.png", given=GIVEN.get(name))
    shutil.copyfile(RESULTS, folder / "results.json")
    write_comparison(folder).rename(folder / "comparison.html")


def write_gallery(pictures: Path, to: Path = PAGES) -> None:
    """Write gallery.md beside the pictures of `drawn`."""
    from seqkit.config import find_recipe, recipe_names

    shutil.copytree(pictures, to / "gallery", dirs_exist_ok=True)
    for left in ("results.json", "results.md"):
        (to / "gallery" / left).unlink(missing_ok=True)
    parts = [HEAD]
    modality = ""
    for name in recipe_names():
        if (now := name.partition("/")[0]) != modality:
            modality = now
            parts.append(f"## {TITLES[now]}")
        text = find_recipe(name)[1].read_text(encoding="utf-8")
        what = text.partition("\n")[0].removeprefix("# ")
        parts.append(f"### {name}\n\n{what}\n\n![An example of {name} as tokens](gallery/{name.replace('/', '-')}.png)")
        recipe = "\n".join(f"    {line}".rstrip() for line in f"```yaml\n{text}```".splitlines())
        parts.append(f'??? note "{name}.yaml"\n\n{recipe}')
    write_changed(to / "gallery.md", "\n\n".join(parts) + "\n")


TITLES = {
    "audio": "Sound",
    "graph": "Graphs",
    "image": "Images",
    "mechanism": "Diagnostic tasks",
    "mixture": "Several tasks",
    "multimodal": "Several modalities",
    "own": "Data of your own",
    "text": "Text",
}
"""Headings by the folder of a recipe."""

HEAD = """# Gallery

Here you see what seqkit makes of your data before you train, and the pages that it writes after.

## Pages that seqkit writes

Each is one HTML file. It needs no network and no server, so you can mail it.

| page | command |
|---|---|
| [report of a run](notebooks/first-run/runs-first-report.html) | `seqkit fit` |
| [attention maps](notebooks/first-run/seen-attention.html) | `seqkit attention` |
| [a tiny comparison](notebooks/compare-two-backbones/runs-copy-report.html) | `seqkit compare --preset debug` |
| [a published comparison](gallery/comparison.html) | `seqkit compare` |

The first two come from [the first run](notebooks/first-run.md), the third from
[compare two backbones](notebooks/compare-two-backbones.md), and the last from [digits](comparisons/digits.md).

The pictures below are what `seqkit inspect RECIPE` draws: one training example of each recipe, as tokens."""
