"""Backbones of docs/families.md, built from the very lines that the page shows."""

import re
from pathlib import Path

from seqkit.config import build, complete, load_yaml

PAGE = Path(__file__).parents[2] / "docs" / "families.md"


def family(name, overrides=None):
    """The backbone of a family's section. overrides: dotted keys below the backbone, such as {"depth": 4}."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section, f"docs/families.md has no section {name}"
    lines = re.search(r"```yaml\n(.*?)```", section[1], re.DOTALL)
    assert lines, f"the section {name} of docs/families.md has no recipe lines"
    backbone = load_yaml(lines[1])["backbone"]
    seq2seq = backbone["type"] == "EncoderDecoder"
    objective = {"type": "Seq2Seq", "target": "Bytes"} if seq2seq else {"type": "Classify"}
    config = {"tokenizer": "Bytes", "model": {"objective": objective, "backbone": backbone}}
    changes = {f"model.backbone.{key}": value for key, value in (overrides or {}).items()}
    return build(complete(config, None, changes, only=("tokenizer", "model"))).model["backbone"]
