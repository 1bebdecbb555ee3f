"""Names of components: listing is light, each name leads to its class, and mistakes are errors that help."""

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from typing import get_type_hints

import pytest

from seqkit.interfaces import Backbone, Objective, Tokenizer
from seqkit.nn.position.base import PositionalEncoding
from seqkit.registry import KINDS, components, find, lookup, register, suggest
from seqkit.training.optim import OptimizerFactory, Schedule

BASES = {
    "tokenizer": Tokenizer,
    "backbone": Backbone,
    "preset": Backbone,
    "objective": Objective,
    "position": PositionalEncoding,
    "optimizer": OptimizerFactory,
    "schedule": Schedule,
}


def test_listing_imports_no_torch():
    code = (
        "import sys; from seqkit.registry import KINDS, components; [components(k) for k in KINDS]; "
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in KINDS for name in components(kind)]
)
def test_every_listed_name_leads_to_a_class_of_its_kind(kind, name):
    component = find(kind, name)
    assert component.what
    loaded = component.load()
    # a preset is a function
    made = loaded if isinstance(loaded, type) else get_type_hints(loaded)["return"]
    assert issubclass(made, BASES.get(kind, object)) or component.path.startswith("torch.optim")


def test_case_does_not_matter_in_names():
    assert find("backbone", "lstm") == find("backbone", "LSTM")
    assert find("data_source", "TINYSHAKESPEARE").name == "tinyshakespeare"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Transfromer", "did you mean Transformer"),
        ("zzz", "there are: .*GRU, .*LSTM, .*RNN, .*Transformer"),
    ],
)
def test_an_unknown_name_shows_what_is_near_or_what_exists(name, hint):
    with pytest.raises(ValueError, match=f"'{name}'"):
        find("backbone", name)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match="'tokeniser'"):
        components("tokeniser")


class Morse:
    pass


def test_a_registered_class_is_found_under_its_name_or_another():
    assert register("tokenizer", what="dots and dashes", when="radio")(Morse) is Morse
    component = find("tokenizer", "morse")
    assert (component.name, component.what, component.when) == ("Morse", "dots and dashes", "radio")
    assert component.load() is Morse
    register("tokenizer", "telegraph")(Morse)
    assert find("tokenizer", "telegraph").load() is Morse
    # the same class again is no conflict: modules are reloaded in notebooks
    register("tokenizer")(Morse)


@pytest.mark.parametrize("name", ["LSTM", "lstm"])
def test_a_name_that_is_taken_is_refused(name):
    with pytest.raises(ValueError, match=r"seqkit.backbones:LSTM"):
        register("backbone", name)(Morse)


@pytest.mark.parametrize("kind", ["tokenizer", "backbone", "data_source", "objective"])
def test_components_of_installed_packages_are_listed_without_importing_them(monkeypatch, kind):
    point = EntryPoint("Braille", "no_such_package.dots:Braille", f"seqkit.{kind}s")
    monkeypatch.setattr(lookup, "entry_points", lambda: EntryPoints([point]))
    # what another test read is not seen
    monkeypatch.setattr(lookup, "_of_every_kind", lookup._of_every_kind.__wrapped__)
    component = components(kind)["Braille"]
    assert component.path == "no_such_package.dots:Braille"
    with pytest.raises(
        ValueError,
        match=r"no_such_package.dots:Braille",
    ):
        component.load()
    assert [other for other in KINDS if "Braille" in components(other)] == [kind]


def test_suggestions_name_the_two_nearest_at_most():
    assert suggest("alpah", ["alpha", "alphas", "alphabet", "beta"]).count(" or ") == 1
    assert suggest("qqq", ["b", "a"]) == "there are: a, b"
    assert suggest("qqq", []) == "there are none"
    assert suggest("SGD", ["torch.optim.SGD", "AdamW"]) == "did you mean torch.optim.SGD?"
