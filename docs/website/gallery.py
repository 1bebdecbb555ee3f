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
    texts = {name: find_recipe(name)[1].read_text(encoding="utf-8") for name in recipe_names()}
    recipes: dict[str, dict[str, Any]] = {name: yaml.safe_load(text) for name, text in texts.items()}
    first: dict[bytes, str] = {}
    for name in sorted(recipes, key=lambda one: "tasks" in recipes[one]):  # a mixture shows the example of a task
        first.setdefault((pictures / _picture(name)).read_bytes(), name)
    for name, text in texts.items():
        if (now := name.partition("/")[0]) != modality:
            modality = now
            parts.append(f"## {TITLES[now]}")
        same = first[(pictures / _picture(name)).read_bytes()]
        parts += [f"### {name}", text.partition("\n")[0].removeprefix("# "), *shown(name, recipes[name], same)]
        recipe = "\n".join(f"    {line}".rstrip() for line in f"```yaml\n{text}```".splitlines())
        parts.append(f'??? note "{name}.yaml"\n\n{recipe}')
        if same != name:
            (to / "gallery" / _picture(name)).unlink()
    write_changed(to / "gallery.md", "\n\n".join(parts) + "\n")


def _picture(name: str) -> str:
    return f"{name.replace('/', '-')}.png"


def shown(name: str, raw: dict[str, Any], same: str) -> list[str]:
    """The picture of a recipe, or the link to that of `same`, which is equal; and what its preset `debug` changes."""
    debug = {key: own for key, own in raw.get("presets", {}).get("debug", {}).items() if key in SECTIONS}
    changed = [(f"{key}.{part}", one) for key, own in debug.items() for part, one in own.items() if part in SEEN]
    keys = ", ".join(f"`{key}: {_words(one)}`" for key, one in changed if not isinstance(one, dict) or "type" in one)
    found = [f"![An example of {name} as tokens](gallery/{_picture(name)})"]
    if same != name:
        whose = "The picture of its first task" if "tasks" in raw else "Its picture"
        found = [f"{whose} is that of [{same}](#{same.replace('/', '')})."]
    return [*found, *([f"The picture is of the preset `debug`, which has {keys}."] if keys else [])]


SECTIONS, SEEN = ("data", "tokenizer"), ("source", "patch", "resize")
"""Settings of a preset that a picture shows."""


def _words(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).partition("\n...")[0].strip()


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
