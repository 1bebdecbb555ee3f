"""Writes docs/strangers.md from the results of a run, which are kept as data in `results.json`."""

import json
import platform
from collections.abc import Iterable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from strangers.families import FAMILIES
from strangers.laws import CACHE, FORWARD, GENERATE, LAWS
from strangers.others import OTHERS

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "strangers.md"

HEADS = {
    "right_padding": "padded right",
    "left_padding": "padded left",
    "left_padding_beside_a_longer_one": "left, beside a longer",
    "padding_inside": "masked inside",
    "no_future": "no future",
    "one_token": "one token",
    "mates": "mates",
    "mates_in_training": "mates, training",
    "training_is_evaluation": "training = evaluation",
    "gradients": "gradients, padded",
    "steps": "steps",
    "steps_from_nothing": "steps from nothing",
    "prompt_in_parts": "prompt in parts",
    "steps_of_two_rows": "two rows",
    "right_padded_prompts": "right-padded, then a token",
    "left_padded_prompts": "left-padded, then a token",
    "left_padded_prompt_in_parts": "left-padded in parts",
    "beams_change_places": "beams",
    "states_are_apart": "two states",
    "other_calls_move_nothing": "another call",
    "generate_left_padded": "padded left",
    "generate_of_two_rows": "two rows",
    "generate_uncached": "no cache",
    "generate_in_parts": "in parts",
    "generate_beams": "beams",
    "generate_looked_up": "looked up",
    "generate_again": "again",
}
"""Heads of the columns."""

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

`seqkit.testing` checks your own modules. This page shows what the same kind of laws says of models that many use, with
random weights times 3, so that it matters what a state holds, and plain torch code on a CPU.

* ✓: the law is kept.
* **.5**: it is broken. The number is the largest difference as a share of the largest right number, in float64;
  float32 breaks it too. A second number is that at the width of a larger model, with two layers, in float32.
* ᵍ: `generate` of the library guards against it: it refuses, warns, or gives the right numbers. Your own loop has no
  such guard.
* refuses: the library says that it does not support the call. `!`: it raises something else. –: the law does not apply:
  the model takes no mask or says that it ignores it, has no cache, or attends both ways.
* f64: float64 alone gives NaN or other numbers, float32 is right.

Each number in bold was also printed by an example of at most {lines} lines without seqkit, in the same run. These
commands print one, and make the page again:

    python -m tests.strangers --show mamba2 right_padded_prompts
    python -m tests.strangers --site FOLDER     # with the packages that are not installed

"""

LEGEND = {
    FORWARD: ("Forward pass", "`model(inputs_embeds, attention_mask)`, without a cache."),
    CACHE: (
        "Cache, in a loop of your own",
        "The cache goes from call to call; masks and positions are of all columns so far.",
    ),
    GENERATE: ("Through `generate` of the library", "Greedy; five tokens."),
}


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
    families = results["families"]
    groups: dict[str, list[str]] = {}
    for name in (*FAMILIES, *OTHERS):
        group = FAMILIES[name].group if name in FAMILIES else OTHERS[name].group
        groups.setdefault(group, []).append(name)
    lines = [HEAD.format(lines=12).rstrip(), "", *_summary(results), ""]
    for laws, (title, words) in LEGEND.items():
        lines += [f"## {title}", "", words, ""]
        lines += [f"* {HEADS[law.__name__]}: {_first(law)}" for law in laws]
        for group, names in groups.items():
            shown = [name for name in names if _applies(families.get(name, {}), laws)]
            if shown:
                lines += ["", f"### {group}: {title.split(',')[0].lower()}", ""]
                lines += _table(families, shown, [law.__name__ for law in laws])
        lines.append("")
    lines += ["## Faults", ""]
    for law in LAWS:
        lines += _faults(families, law)
    lines += _end(results)
    return "\n".join(lines).rstrip() + "\n"


def _first(law: Any) -> str:
    said = (law.__doc__ or "").strip().split("\n")[0]
    return said[0].lower() + said[1:]


def _applies(row: dict[str, Any], laws: Iterable[Any]) -> bool:
    if "tiny" not in row:
        return True
    return any(row["tiny"][law.__name__]["status"] != "not applicable" for law in laws)


def _summary(results: dict[str, Any]) -> list[str]:
    families = results["families"]
    rows = [row for row in families.values() if "tiny" in row]
    cells = [cell["status"] for row in rows for cell in row["tiny"].values()]
    faulty = sum(any(c["status"] == "broken" for c in row["tiny"].values()) for row in rows)
    ragged = [row for row in rows if row["tiny"]["right_padded_prompts"]["status"] == "broken"]
    return [
        f"{len(rows)} families × {len(LAWS)} laws: {cells.count('kept'):,} cells are kept, {cells.count('broken')} "
        f"broken, in {faulty} families. The fault of transformers#48256, which reports Mamba-family models, is "
        f"in {len(ragged)}: prompts that are padded on the right, then a token.",
    ]


def _table(families: dict[str, Any], names: list[str], laws: list[str]) -> list[str]:
    lines = ["| family | " + " | ".join(HEADS[law] for law in laws) + " |"]
    lines.append("|---|" + ":-:|" * len(laws))
    for name in names:
        row = families.get(name, {})
        if "tiny" in row:
            cells = [_cell(row, law) for law in laws]
        else:
            cells = ["not installed"] + [""] * (len(laws) - 1)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _cell(row: dict[str, Any], law: str) -> str:
    cell = row["tiny"][law]
    words = {
        "kept": "✓",
        "not applicable": "–",
        "raises": "!",
        "generate refuses it": "refuses",
        "float64 alone": "f64",
        "float32 alone": "f32",
    }
    if cell["status"] != "broken":
        return words.get(cell["status"], cell["status"])
    text = f"**{_size(cell['by_hand'])}**"
    wide = row.get("published", {}).get(law, {})
    if wide.get("status") == "broken":
        text += f" {_size(wide['by_hand'])}"
    return text + ("ᵍ" if _guard(row, law) else "")


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


def _faults(families: dict[str, Any], law: str) -> list[str]:
    """A section of one law: its families with their threads, and the example of one."""
    broken = {
        name: row
        for name, row in families.items()
        if "tiny" in row and row["tiny"][law]["status"] == "broken"
    }
    if not broken:
        return []
    lines = [f"### {law}", "", (LAWS[law].__doc__ or "").strip(), ""]
    alike: dict[str, list[str]] = {}
    for name, row in broken.items():
        thread = THREADS.get((law, name)) or THREADS_OF_LAWS.get(law) or "no thread found"
        guard = _guard(row, law)
        words = f"{thread}; {guard}" if guard else thread
        alike.setdefault(words, []).append(f"{name} {_size(row['tiny'][law]['by_hand'])}")
    lines += [f"* {', '.join(names)}: {words}" for words, names in alike.items()]
    shown = max(broken, key=lambda name: _as_number(broken[name]["tiny"][law]["by_hand"]))
    lines += ["", f"{shown}:", "", "```py", broken[shown]["tiny"][law]["example"], "```", ""]
    return lines


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
        "## How it was measured",
        "",
        f"{results['date']}, {results['machine']}; {minutes:.0f} minutes of one core. {versions}.",
        "",
        f"Larger widths, meant as those of checkpoints but not compared with their files: {wide}. "
        "The others are too wide for the time.",
        "",
        "Threads were searched for on that date; one that is not named may exist all the same.",
    ]
