"""Small finished runs to report on: each objective once, trained for two steps."""

import warnings

import pytest

from seqkit.configure import parse
from seqkit.report.page import write_report
from seqkit.run import fit

PATCHES = {"class_path": "seqkit.tokenizers.image.Patches", "init_args": {"patch": 4}}
OBJECTIVES = "seqkit.objectives"


def config(folder, kind):
    """A complete recipe, as `configure.read_recipe` gives it."""
    (folder / "text.txt").write_text("To be, or not to be: that is the question.\n" * 37, encoding="utf-8")
    rows = "\n".join(f"{'C' * n}O,{n}.5" for n in range(1, 12))
    (folder / "molecules.csv").write_text(f"smiles,target\n{rows}\n", encoding="utf-8")
    digits = {"source": {"class_path": "seqkit.data.image.Digits"}, "limit": 37}
    text = {"class_path": "seqkit.data.text.TextFiles", "init_args": {"path": str(folder / "text.txt")}}
    table = {"class_path": "seqkit.data.graph.SmilesTable", "init_args": {"path": str(folder / "molecules.csv")}}
    characters = {"class_path": "seqkit.tokenizers.text.Characters"}
    data, tokenizer, objective = {
        "classify": (digits, PATCHES, f"{OBJECTIVES}.classify.Classify"),
        "masked vectors": (digits, PATCHES, f"{OBJECTIVES}.masked.Masked"),
        "masked ids": ({"source": text, "window": 17}, characters, f"{OBJECTIVES}.masked.Masked"),
        "next token": ({"source": text, "window": 17}, characters, f"{OBJECTIVES}.next_token.NextToken"),
        "regress": (
            {"source": table}, {"class_path": "seqkit.tokenizers.molecule.Molecule"}, f"{OBJECTIVES}.regress.Regress",
        ),
        "nodes": (
            {"source": {"class_path": "seqkit.data.graph.Karate"}, "valid_fraction": 0.0},
            {"class_path": "seqkit.tokenizers.graph.Graph", "init_args": {"num_categories": 34}},
            {"class_path": f"{OBJECTIVES}.classify.Classify", "init_args": {"per": "token"}},
        ),
    }[kind]  # fmt: skip
    backbone = {"dim": 8, "depth": 1, "num_heads": 2, "causal": kind == "next token"}
    return {
        "recipe": f"test/{kind.replace(' ', '-')}",
        "data": data | {"batch_size": 11},
        "tokenizer": tokenizer,
        "model": {
            "objective": {"class_path": objective} if isinstance(objective, str) else objective,
            "backbone": {"class_path": "seqkit.backbones.transformer.Transformer", "init_args": backbone},
        },
        "trainer": {
            "max_steps": 2, "accelerator": "cpu", "enable_progress_bar": False, "log_every_n_steps": 1,
            "val_check_interval": 1,
        },
    }  # fmt: skip


@pytest.fixture(name="config", scope="session")
def _config():
    """(folder, kind) → a complete recipe whose data stand in that folder."""
    return config


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """kind → the folder of a finished run of that kind; trained when first asked for, and not to be changed."""
    runs = {}

    def run(kind):
        if kind not in runs:
            place = tmp_path_factory.mktemp("run")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Lightning's advice on workers, loops and folders
                fit(parse(config(place, kind)), place / "run")
            runs[kind] = place / "run"
        return runs[kind]

    return run


@pytest.fixture(scope="session")
def reported(trained):
    """kind → the text of that run's report, written once."""
    pages = {}

    def page(kind):
        if kind not in pages:
            pages[kind] = write_report(trained(kind)).read_text(encoding="utf-8")
        return pages[kind]

    return page
