"""Names of parts: listing is light, each name leads to its class, duplicates and unknown names are errors that help."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import get_type_hints

import pytest

from seqkit import registry
from seqkit.contract import Backbone, Objective, Tokenizer
from seqkit.layers.position import AddedPosition
from seqkit.optim import OptimizerPart, Schedule
from seqkit.registry import KINDS, find, parts, register, suggest

BASES = {
    "tokenizer": Tokenizer,
    "backbone": Backbone,
    "preset": Backbone,
    "objective": Objective,
    "position": AddedPosition,
    "optimizer": OptimizerPart,
    "schedule": Schedule,
}


@pytest.fixture(autouse=True)
def _own_table(monkeypatch):
    monkeypatch.setattr(registry, "_PARTS", {kind: {} for kind in KINDS})


def test_listing_imports_no_torch():
    code = (
        "import sys; from seqkit.registry import KINDS, parts; [parts(k) for k in KINDS]; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in parts(kind)])
def test_every_listed_name_leads_to_a_class_of_its_kind(kind, name):
    part = find(kind, name)
    assert part.what
    loaded = part.load()
    made = loaded if isinstance(loaded, type) else get_type_hints(loaded)["return"]  # a preset is a function
    assert issubclass(made, BASES.get(kind, object))
    assert part.class_path == part.path.replace(":", ".")


def test_case_does_not_matter_in_names():
    assert find("backbone", "lstm") == find("backbone", "LSTM")
    assert find("source", "TINYSHAKESPEARE").name == "tinyshakespeare"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Transfromer", "did you mean Transformer"), ("zzz", "there are: GRU, LSTM, RNN, .*Transformer")],
)
def test_an_unknown_name_shows_what_is_near_or_what_exists(name, hint):
    with pytest.raises(ValueError, match=f"no backbone called '{name}'; {hint}"):
        find("backbone", name)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match="no kind of part called 'tokeniser'; did you mean tokenizer"):
        parts("tokeniser")


class Morse:
    pass


def test_a_registered_class_is_found_under_its_name_or_another():
    assert register("tokenizer", what="dots and dashes", when="radio")(Morse) is Morse
    part = find("tokenizer", "morse")
    assert (part.name, part.what, part.when) == ("Morse", "dots and dashes", "radio")
    assert part.load() is Morse
    register("tokenizer", "telegraph")(Morse)
    assert find("tokenizer", "telegraph").load() is Morse
    register("tokenizer")(Morse)  # the same class again is no conflict: modules are reloaded in notebooks


@pytest.mark.parametrize("name", ["LSTM", "lstm"])
def test_a_name_that_is_taken_is_refused(name):
    with pytest.raises(ValueError, match=r"is already seqkit.backbones.recurrent:LSTM; pick another name for .*:Morse"):
        register("backbone", name)(Morse)


@pytest.mark.parametrize("kind", ["tokenizer", "backbone", "source"])
def test_parts_of_installed_packages_are_listed_without_importing_them(monkeypatch, kind):
    point = EntryPoint("Braille", "no_such_package.dots:Braille", f"seqkit.{kind}s")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == f"seqkit.{kind}s" else [])
    part = parts(kind)["Braille"]
    assert part.class_path == "no_such_package.dots.Braille"
    with pytest.raises(
        ValueError, match=r"Braille should stand at no_such_package.dots:Braille, which cannot be imported"
    ):
        part.load()
    assert [other for other in KINDS if "Braille" in parts(other)] == [kind]
    assert part.class_path in registry.registered_paths()  # so a recipe may name it


def test_suggestions_name_the_two_nearest_at_most():
    assert suggest("alpah", ["alpha", "alphas", "alphabet", "beta"]).count(" or ") == 1
    assert suggest("qqq", ["b", "a"]) == "there are: a, b"
