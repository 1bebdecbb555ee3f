"""Models of docs/families.md, built from the very lines that the page shows."""

import re
from pathlib import Path

from seqkit.config import build, complete, load_yaml

PAGE = Path(__file__).parents[2] / "docs" / "families.md"


def family(name, overrides=None):
    """The backbone of a family's section. overrides: dotted keys below the backbone, such as {"depth": 4}."""
    return settings(name, overrides)["backbone"]


def settings(name, overrides=None):
    """Arguments of `Model` from a family's section, its objective left out. overrides: as of `family`."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section, f"docs/families.md has no section {name}"
    lines = re.search(r"```yaml\n(.*?)```", section[1], re.DOTALL)
    assert lines, f"the section {name} of docs/families.md has no recipe lines"
    model = load_yaml(lines[1])
    seq2seq = model["backbone"]["type"] == "EncoderDecoder"
    objective = {"type": "Seq2Seq", "target": "Bytes"} if seq2seq else {"type": "Classify"}
    config = {"tokenizer": "Bytes", "model": {"objective": objective, **model}}
    changes = {f"model.backbone.{key}": value for key, value in (overrides or {}).items()}
    built = build(complete(config, None, changes, only=("tokenizer", "model"))).model
    return {key: value for key, value in built.items() if key != "objective"}
