"""Every key of every built-in component has a sentence, read from docstrings."""

import pytest

from seqkit.config.docs import TOP, explanation
from seqkit.config.merge import root
from seqkit.config.schema import Field
from seqkit.registry import BUILT_IN

GIVEN = {
    "position": 2, "relative_position": 3, "block": 2, "mixer": 2, "mechanism": 2, "mlp": 1, "norm": 1,
    "residual": 1, "convolution": 1, "activation": 0, "transform": 1,
}  # fmt: skip
"""Arguments that the owner of a component gives itself."""


class Base:
    """A base.

    width: of the hidden states; None: as the owner's. rate, other: two
    numbers. Raises ValueError for none.
    """

    def __init__(self, width: int, rate: float, other: float):
        """As Google writes it.

        Args:
            other (float, optional): the other one, see :class:`torch.nn.Linear`
                (default: 1e-3). It counts.
        """


class Heir(Base):
    """An heir. rate: its own."""


def test_entries_are_found_in_classes_constructors_and_bases():
    assert explanation(Base, "width") == "Of the hidden states; None: as the owner's."
    assert explanation(Base, "rate") == explanation(Base, "other") == "Two numbers."
    assert explanation(Heir, "rate") == "Its own."
    assert explanation(Heir, "width") == explanation(Base, "width")
    assert explanation(Base, "nothing") == ""


def test_the_style_of_google_is_read_without_its_default():
    class Own(Base):
        __init__ = Base.__init__
        __doc__ = None

    class Alone:
        __init__ = Base.__init__

    assert explanation(Alone, "other") == "The other one, see torch.nn.Linear. It counts."
    assert explanation(Own, "other") == explanation(Alone, "other")


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_key_of_every_built_in_component_has_a_sentence(kind):
    field = Field("x", kind="backbone" if kind == "preset" else kind, num_given=GIVEN.get(kind))
    for component in BUILT_IN[kind]:
        owner = component.load()
        missing = [
            name for name in field.keys_below(component.name, "x") if not explanation(owner, name)
        ]
        assert not missing, component.path


def test_every_key_of_a_section_has_a_sentence():
    for name, field in root().items():
        assert TOP[name]
        if field.section is not None:
            owner = field.component(None, name).load()
            assert not [key for key in field.keys_below(None, name) if not explanation(owner, key)]
