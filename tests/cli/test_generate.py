"""`seqkit generate`: what it does with what the user left out."""

from types import SimpleNamespace

import pytest
import torch

from seqkit.cli.generate import beginnings, printed
from seqkit.errors import DataError
from seqkit.generation import Sampling
from seqkit.interfaces import Tokens, TokenSpec
from seqkit.tokenizers.text import Bytes


class Digits(Bytes):
    """Numbers, a token each, and files of such."""

    spec = TokenSpec(vocab_size=10)

    def encode(self, raw, /):
        return Tokens(torch.tensor([*raw]), torch.arange(float(len(raw)))[:, None])

    def decode(self, tokens):
        return "".join(map(str, tokens.tolist()))

    def read(self, path):
        return [int(digit) for digit in path.read_text(encoding="utf-8")]


def run_of(tokenizer):
    model = SimpleNamespace(spec=tokenizer.spec, source_embedder=None)
    objective = SimpleNamespace(target_spec=None)
    return SimpleNamespace(
        tokenizer=tokenizer, model=model, objective=objective, config={"data": {"source": "any"}}
    )


def test_a_prompt_that_names_a_file_is_what_stands_in_it(tmp_path):
    for name, text in (("a.dig", "123"), ("a.txt", "to be")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    digits, text, gone = (str(tmp_path / name) for name in ("a.dig", "a.txt", "gone.dig"))
    assert list(beginnings(run_of(Digits()), digits)) == [(digits, [1, 2, 3])]
    assert list(beginnings(run_of(Bytes()), text)) == [(text, "to be")]
    with pytest.raises(DataError, match="is no file"):
        list(beginnings(run_of(Digits()), gone))


@pytest.mark.parametrize("given", ["x[0].y", "a/b", "gone.txt", "", ".", "to be " * 1000])
def test_any_other_text_is_a_prompt_itself(given):
    assert list(beginnings(run_of(Bytes()), given)) == [(given, given)]


def test_a_prompt_that_is_no_text_is_shown_decoded(monkeypatch):
    monkeypatch.setattr(
        "seqkit.generation.prompts_to_text.stream_text", lambda *_args, **_kwargs: iter(["45"])
    )
    pieces = printed(run_of(Digits()), [("a.dig", [1, 2, 3])], Sampling(), None, [])
    assert "".join(pieces) == "12345\n"
