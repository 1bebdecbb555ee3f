"""Base classes say what a component without a state or a cache cannot do."""

import pytest

from seqkit.interfaces import Backbone, Stateful


def test_an_end_without_state_takes_none():
    end = Stateful()
    assert end.state() == {}
    end.load_state({})
    with pytest.raises(ValueError, match=r"Stateful has no fitted state"):
        end.load_state({"scale": 2})


def test_a_backbone_without_a_cache_says_how_to_generate():
    class Plain(Backbone):
        def forward(self, embedded, cache=None):
            return embedded.hidden

    with pytest.raises(ValueError, match="Plain has no cache"):
        Plain().init_cache(3)
