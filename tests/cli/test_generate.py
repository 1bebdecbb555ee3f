"""`seqkit generate`: what it does with what the user left out."""

from types import SimpleNamespace

import pytest

from seqkit.cli.generate import _first_text
from seqkit.tokenizers.text import Bytes, Characters, Words


@pytest.mark.parametrize(
    ("tokenizer", "text"), [(Bytes(), "\n"), (Characters("ab\n"), "\n"), (Characters("ba"), "b"), (Words(), "yes")]
)
def test_without_a_prompt_a_line_break_is_continued_or_the_first_text_that_is_known(tokenizer, text):
    if isinstance(tokenizer, Words):
        tokenizer.fit(["yes"])
    assert _first_text(SimpleNamespace(tokenizer=tokenizer, model=SimpleNamespace(spec=tokenizer.spec))) == text
