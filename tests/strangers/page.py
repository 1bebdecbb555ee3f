"""Writes docs/strangers.md from the results of a run, which are kept as data in `results.json`."""

import json
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from strangers.families import FAMILIES
from strangers.laws import CACHE, FORWARD, GENERATE, LAWS
from strangers.others import OTHERS

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "strangers.md"

PADDED = "transformers#31201, closed"
PARTS = "transformers#47087, where a maintainer says that Mamba 1 does not take a prompt in parts"
SHIFTED = "x-transformers#208, which asks about the mask of shifted tokens"
SHIFTING = "Decoder of x-transformers, shifted tokens"
THREADS = {
    ("left_padding", "recurrent_gemma"): PADDED,
    ("left_padding_beside_a_longer_one", "recurrent_gemma"): PADDED,
    ("padding_inside", "recurrent_gemma"): PADDED,
    ("generate_left_padded", "recurrent_gemma"): PADDED,
    ("prompt_in_parts", "mamba"): PARTS,
    ("prompt_in_parts", "falcon_mamba"): PARTS,
    ("prompt_in_parts", "jamba"): PARTS,
    ("generate_in_parts", "jamba"): PARTS,
    ("beams_change_places", "minimax"): "PaddleFormers#4662, of a port",
    ("generate_beams", "minimax"): "PaddleFormers#4662, of a port",
    ("left_padding", SHIFTING): SHIFTED,
    ("left_padding_beside_a_longer_one", SHIFTING): SHIFTED,
    ("padding_inside", SHIFTING): SHIFTED,
}
"""Public threads about a fault of one family."""

THREADS_OF_LAWS = {"right_padded_prompts": "transformers#48256, open, of Mamba-family models"}
"""Threads about a fault of many."""

GUARDS = {
    "prompt_in_parts": "generate_in_parts",
    "left_padded_prompts": "generate_left_padded",
    "left_padded_prompt_in_parts": "generate_left_padded",
    "beams_change_places": "generate_beams",
    "steps": "generate_uncached",
}
"""Laws of a loop of one's own, and the law of `generate` that says whether it guards."""

HEAD = """\
# Laws of published models

This page shows what [laws like those for your own modules](write-a-backbone.md#any-module) say of models that many
use. The models are small, with random weights times 3, so that it matters what a state holds.

{summary}

* **Broken by**: the number behind a family is the largest difference as a share of the largest right number, in
  float64; float32 breaks the law too. In brackets is the number at the width of a larger model, with two layers, in
  float32. A public thread may follow, and how the library's `generate` guards against the fault. Your own loop has no
  such guard.
* **Refused by**: the library says that it does not support the call. **Fails in**: it raises something else.
* **float64 alone**: that gives NaN or other numbers, float32 is right.
* A law **applies** unless the model takes no mask or says that it ignores it, has no cache, or attends both ways.

An example of at most {lines} lines without seqkit printed each number. These commands print one, and make the page
again:

    python -m tests.strangers --show mamba right_padded_prompts
    python -m tests.strangers --site FOLDER     # with the packages that are not installed

{example}

## Families
"""

LEGEND = {
    FORWARD: ("Forward pass", "`model(inputs_embeds, attention_mask)`, without a cache."),
    CACHE: (
        "Cache, in a loop of your own",
        "The cache goes from call to call; masks and positions are of all columns so far.",
    ),
    GENERATE: ("Through `generate` of the library", "Greedy; five tokens."),
}

OTHER = {
    "Refused by": "generate refuses it",
    "Fails in": "raises",
    "float64 alone": "float64 alone",
}
"""What is neither kept nor broken, by its words on the page."""


def read_results() -> dict[str, Any]:
    """What earlier runs found."""
    if RESULTS.exists():
        found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
        return found
    return {"families": {}, "seconds": {}}


def write_results(results: dict[str, Any]) -> None:
    """Write what was found, with the date, the machine and the versions."""
    packages = {"torch", "transformers", *(other.distribution for other in OTHERS.values())}
    results |= {
        "date": date.today().isoformat(),
        "machine": f"{platform.system()}, {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: found for name in sorted(packages) if (found := _version(name))},
    }
    rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in results["families"].items()]
    others = {name: found for name, found in results.items() if name != "families"}
    text = (
        json.dumps(others, indent=1)[:-2] + ',\n "families": {\n' + ",\n".join(rows) + "\n }\n}\n"
    )
    RESULTS.write_text(text, encoding="utf-8")


def _version(name: str) -> str:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return ""


def write_page(results: dict[str, Any]) -> None:
    """Write the page."""
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: dict[str, Any]) -> str:
    """The page of results."""
    families = {name: row for name, row in results["families"].items() if "tiny" in row}
    most = max(LAWS, key=lambda law: len(_with(families, law, "broken")))
    example = _example(families, most)
    lines = HEAD.format(summary=_summary(families), lines=12, example=example).split("\n")
    lines += _groups(families)
    for laws, (title, words) in LEGEND.items():
        names = [law.__name__ for law in laws]
        lines += ["", f"## {title}", "", words, ""]
        for name in names:
            lines += _law(families, name)
    return "\n".join([*lines, *_end(results)]).rstrip() + "\n"


def _with(families: dict[str, Any], law: str, status: str) -> dict[str, Any]:
    """Cells of the families in which a law has this status."""
    cells = {name: row["tiny"][law] for name, row in families.items()}
    return {name: cell for name, cell in cells.items() if cell["status"] == status}


def _summary(families: dict[str, Any]) -> str:
    cells = [cell["status"] for row in families.values() for cell in row["tiny"].values()]
    faulty = {name for law in LAWS for name in _with(families, law, "broken")}
    return (
        f"{len(families)} families × {len(LAWS)} laws: {cells.count('kept'):,} are kept, {cells.count('broken')} "
        f"broken, in {len(faulty)} families.\nThe fault of transformers#48256, which reports Mamba-family models, "
        f"is in {len(_with(families, 'right_padded_prompts', 'broken'))}: prompts that are padded on the right, "
        "then a token."
    )


def _groups(families: dict[str, Any]) -> list[str]:
    """A line of each group: its families, those that break nothing apart."""
    faulty = {name for law in LAWS for name in _with(families, law, "broken")}
    groups: dict[str, list[str]] = {}
    for name in (*FAMILIES, *OTHERS):
        group = FAMILIES[name].group if name in FAMILIES else OTHERS[name].group
        groups.setdefault(group, []).append(name if name in families else f"{name} (not installed)")
    lines = []
    for group, names in groups.items():
        broken = "; ".join(name for name in names if name in faulty)
        kept = "; ".join(name for name in names if name not in faulty)
        said = [
            words
            for words in (broken and f"**broken**: {broken}", kept and f"kept: {kept}")
            if words
        ]
        lines += [f"* {group}:", *(f"    * {words}" for words in said)]
    return lines


def _law(families: dict[str, Any], law: str) -> list[str]:
    """A law, and what the families do with it."""
    kept = len(_with(families, law, "kept"))
    applies = len(families) - len(_with(families, law, "not applicable"))
    number = f"all {kept}" if kept == applies else f"{kept} of {applies}"
    said = (LAWS[law].__doc__ or "").strip()
    lines = [f"* `{law}`: {said[0].lower()}{said[1:]} Kept by {number}."]
    alike: dict[str, list[str]] = {}
    for name, cell in _with(families, law, "broken").items():
        words = "; ".join(filter(None, [_thread(law, name), _guard(families[name], law)]))
        wide = families[name].get("published", {}).get(law, {})
        size = _size(cell["by_hand"])
        if wide.get("status") == "broken":
            size += f" ({_size(wide['by_hand'])})"
        alike.setdefault(words, []).append(f"{name} {size}")
    for words, names in alike.items():
        lines.append(f"    * **Broken by** {'; '.join(names)}" + (f": {words}" if words else ""))
    for words, status in OTHER.items():
        names = list(_with(families, law, status))
        lines += [f"    * **{words}** {'; '.join(names)}"] if names else []
    return lines


def _thread(law: str, name: str) -> str:
    return THREADS.get((law, name)) or THREADS_OF_LAWS.get(law, "")


def _size(size: Any) -> str:
    return f"{size:.1g}".removeprefix("0") if isinstance(size, float | int) else str(size)


def _guard(row: dict[str, Any], law: str) -> str:
    """How `generate` guards against a fault of one's own loop; empty: it does not."""
    if law == "right_padded_prompts":
        return "`generate` warns of padding on the right, and asks for left"
    other = row["tiny"].get(GUARDS.get(law, ""), {})
    if other.get("status") == "generate refuses it":
        return "`generate` refuses it"
    return "`generate` gives the right numbers" if other.get("status") == "kept" else ""


def _example(families: dict[str, Any], law: str) -> str:
    """The example of the family that breaks a law most."""
    broken = _with(families, law, "broken")
    shown = max(broken, key=lambda name: _as_number(broken[name]["by_hand"]))
    return f"```py\n# {law}, {shown}\n{broken[shown]['example']}\n```"


def _as_number(size: Any) -> float:
    return float(size) if isinstance(size, float | int) else 0.0


def _end(results: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {found}" for name, found in results["versions"].items())
    wide = ", ".join(
        f"{name} ({FAMILIES[name].checkpoint})"
        for name, row in results["families"].items()
        if "published" in row
    )
    minutes = sum(results["seconds"].values()) / 60
    return [
        "",
        "## How it was measured",
        "",
        f"{results['date']}, {results['machine']}; {minutes:.0f} minutes of one core. {versions}.",
        "",
        f"Larger widths are meant as those of checkpoints, whose files were not compared: {wide}.",
        "",
        "Threads were searched for on that date; others may exist.",
    ]
