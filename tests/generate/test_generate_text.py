"""Text from runs: streamed, whole, several at once, searched for; cut where it should be; and by the command."""

import pytest
import torch
from writing import SOURCE_VOCAB, VOCAB, writing_model

from seqkit.backbones import GRU, Transformer
from seqkit.cli import main
from seqkit.contract import DataError, TokenBatch, TokenSpec
from seqkit.generate import BeamSearch, Sampling, complete, stream_text, write_texts
from seqkit.model import Model
from seqkit.objectives import Classify, NextToken
from seqkit.objectives.translate import Translate
from seqkit.run import Loaded
from seqkit.tokenizers import Bytes, Characters, Patches, Words

LETTERS = "abcdefghijkl\n"
GREEDY = Sampling(temperature=0)


def language_model(window=31) -> Loaded:
    config = {"data": {"window": window}}
    assert len(LETTERS) == VOCAB
    return Loaded(writing_model(), Characters(LETTERS), NextToken(), config, {})


def speller() -> Loaded:
    """Writes letters from letters."""
    objective = Translate(Characters("abcdefghijk"), tied=False)
    objective.fit(["abc", "hijkab"], None)
    return Loaded(writing_model("GRU, Bahdanau"), Characters("qrstuvw"[:SOURCE_VOCAB]), objective, {"data": {}}, {})


def bytes_model() -> Loaded:
    torch.manual_seed(3)
    m = Model(Bytes().spec, Transformer(24, 1, num_heads=3, causal=True), NextToken())
    torch.nn.init.normal_(m.head.linear.weight)
    return Loaded(m.eval(), Bytes(), NextToken(), {"data": {}}, {})


@pytest.mark.parametrize("made", [language_model, lambda: language_model(window=5), bytes_model])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=7)])
def test_pieces_together_are_the_ids_as_text(made, sampling):
    loaded = made()
    context = loaded.config["data"].get("window")
    (ids,) = complete(loaded.model, [loaded.tokenizer.encode("ab").content], 41, strategy=sampling, context=context)
    pieces = list(stream_text(loaded, "ab", 41, sampling=sampling))
    assert "".join(pieces) == loaded.tokenizer.decode(ids)
    assert len(pieces) > 20
    assert write_texts(loaded, ["ab"], 41, strategy=sampling) == ["".join(pieces)]


def test_half_a_character_waits_for_its_other_half(monkeypatch):
    import seqkit.generate.text

    loaded = bytes_model()
    written = [torch.tensor([i]) for i in "a\N{SNOWMAN}b\N{GREEK SMALL LETTER PI}".encode()]
    monkeypatch.setattr(seqkit.generate.text, "generate", lambda *args, **settings: iter(written))
    assert list(stream_text(loaded, "x", 7)) == ["a", "\N{SNOWMAN}", "b", "\N{GREEK SMALL LETTER PI}"]
    cut = written[:-1]  # the model stopped inside a character: shown as such at the end
    monkeypatch.setattr(seqkit.generate.text, "generate", lambda *args, **settings: iter(cut))
    assert list(stream_text(loaded, "x", 6)) == ["a", "\N{SNOWMAN}", "b", "\N{REPLACEMENT CHARACTER}"]


def test_it_ends_before_a_stop_text_and_shows_nothing_of_it():
    loaded = language_model()
    free = "".join(stream_text(loaded, "ab", 41))
    stop = free[5:8]
    assert "".join(stream_text(loaded, "ab", 41, stop=[stop])) == free[: free.index(stop)]
    assert (
        "".join(stream_text(loaded, "ab", 41, stop=["no such text", stop, free[30]]))
        == free[: min(free.index(stop), free.index(free[30]))]
    )
    almost = free[5:7] + ("a" if free[7] != "a" else "b")  # begins like what comes, but is another text
    assert almost not in free
    assert "".join(stream_text(loaded, "ab", 41, stop=[almost])) == free
    assert (
        "".join(stream_text(loaded, "ab", 41, stop=["ab" + free[0]])) == free
    )  # a prompt is no part of what is written
    with pytest.raises(ValueError, match="a stop text is empty"):
        next(stream_text(loaded, "ab", 41, stop=[""]))


def test_several_prompts_are_continued_as_if_alone():
    loaded, prompts = language_model(), ["abc", "k", "dd\n"]
    for stop in ([], ["a"]):
        together = write_texts(loaded, prompts, 23, strategy=Sampling(seed=4), stop=stop)
        alone = ["".join(stream_text(loaded, p, 23, sampling=Sampling(seed=4 + i), stop=stop)) for i, p in
                 enumerate(prompts)]  # fmt: skip
        assert together == alone
    assert len(set(map(len, together))) > 1


def test_beams_write_the_best_text_and_stop_at_a_token():
    loaded = language_model()
    (text,) = write_texts(loaded, ["ab"], 9, strategy=BeamSearch(3))
    (ids,) = complete(loaded.model, [loaded.tokenizer.encode("ab").content], 9, strategy=BeamSearch(3), context=31)
    assert text == loaded.tokenizer.decode(ids)
    assert text[3] not in write_texts(loaded, ["ab"], 9, strategy=BeamSearch(3), stop=[text[3]])[0]
    with pytest.raises(ValueError, match="stop text 'abc' is 3 tokens; a beam search stops at one"):
        write_texts(loaded, ["ab"], 9, strategy=BeamSearch(3), stop=["abc"])


@pytest.mark.parametrize("strategy", [GREEDY, Sampling(seed=2), BeamSearch(3)])
def test_a_translation_is_what_the_model_writes_from_the_source_up_to_end(strategy):
    loaded = speller()
    objective, tokenizer = loaded.objective, loaded.tokenizer
    texts = write_texts(loaded, ["qrs", "w"], strategy=strategy)
    for i, (source, text) in enumerate(zip(["qrs", "w"], texts)):
        own = Sampling(seed=2 + i) if strategy == Sampling(seed=2) else strategy
        (ids,) = complete(
            loaded.model, [torch.tensor([objective.begin])], 7, strategy=own, stop=[objective.end],
            memory=TokenBatch.collate([tokenizer.encode(source)]),
        )  # fmt: skip
        assert text == objective.target.decode(ids[ids < objective.begin])
        if isinstance(own, Sampling):
            assert "".join(stream_text(loaded, source, sampling=own)) == text
    assert max(map(len, texts)) <= 7  # the longest training label, and end
    assert any(texts)


def test_greedy_translation_is_the_objectives_own():
    loaded, sources = speller(), ["qrs", "w", "ttuuvv"]
    batch = TokenBatch.collate([loaded.tokenizer.encode(source) for source in sources])
    expected = loaded.objective.answer(loaded.objective.predict(loaded.model, batch))
    ours = write_texts(loaded, sources, loaded.objective.longest, strategy=GREEDY)
    assert ours == expected


def test_a_run_that_writes_no_text_says_so():
    objective = Classify()
    objective.fit([0, 1], None)
    patches = Patches(2)
    loaded = Loaded(Model(patches.spec, GRU(24, causal=True), objective), patches, objective, {"data": {}}, {})
    with pytest.raises(ValueError, match="Patches cannot turn ids back into text; generate from a text recipe's run"):
        next(stream_text(loaded, torch.zeros(1, 4, 4), 3))


def test_a_prompt_that_cannot_be_encoded_is_an_error_of_the_data():
    for prompt in ("", "xyz"):
        with pytest.raises(DataError):
            next(stream_text(language_model(), prompt, 3))


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `seqkit generate` on a model of ours: exit code, what it printed, what it said."""

    def command(loaded, *words):
        monkeypatch.setattr("seqkit.run.load", lambda folder: loaded)
        try:
            code = main(["generate", "runs/mine", *words])
        except SystemExit as done:  # argparse's own refusals
            code = done.code
        return code, *capsys.readouterr()

    return command


def test_the_command_prints_prompt_and_continuation(run):
    loaded = language_model()
    text = "".join(stream_text(loaded, "ab", 17, sampling=Sampling(temperature=0.8, seed=3)))
    words = ["--prompt", "ab", "--tokens", "17", "--seed", "3"]
    assert run(loaded, *words) == (0, f"ab{text}\n", "")
    assert run(loaded, *words, "--stop", text[5]) == (0, f"ab{text[: text.index(text[5])]}\n", "")
    sampling = Sampling(temperature=1.1, top_k=9, top_p=0.9, min_p=0.05, repetition_penalty=1.5)
    text = "".join(stream_text(loaded, "ab", 17, sampling=sampling))
    words = ["--temperature", "1.1", "--top-k", "9", "--top-p", "0.9", "--min-p", "0.05", "--repetition-penalty", "1.5"]
    assert run(loaded, "--prompt", "ab", "--max-new-tokens", "17", *words)[1] == f"ab{text}\n"


def test_the_command_numbers_several_texts(run):
    loaded = language_model()
    texts = write_texts(loaded, ["ab", "ab", "k", "k"], 7, strategy=Sampling(temperature=0.8))
    code, printed, _ = run(loaded, "--prompt", "ab", "--prompt", "k", "--samples", "2", "--tokens", "7")
    assert code == 0
    expected = [f"--- {i} of 4 ---\n{p}{text}\n" for i, (p, text) in enumerate(zip(["ab", "ab", "k", "k"], texts), 1)]
    assert printed == "".join(expected)


def test_the_command_searches_with_beams(run):
    loaded = language_model()
    (text,) = write_texts(loaded, ["ab"], 7, strategy=BeamSearch(5, length_penalty=0.5))
    words = ["--prompt", "ab", "--tokens", "7", "--num-beams", "5", "--length-penalty", "0.5"]
    assert run(loaded, *words) == (0, f"ab{text}\n", "")


def test_the_command_writes_from_a_source(run):
    loaded = speller()
    greedy = write_texts(loaded, ["qrs", "w"], strategy=GREEDY)
    assert run(loaded, "--prompt", "qrs", "--temperature", "0") == (0, f"{greedy[0]}\n", "")
    both = run(loaded, "--prompt", "qrs", "--prompt", "w", "--temperature", "0")
    assert both == (0, f"qrs\t{greedy[0]}\nw\t{greedy[1]}\n", "")
    (best,) = write_texts(loaded, ["qrs"], strategy=BeamSearch(3))
    assert run(loaded, "--prompt", "qrs", "--num-beams", "3") == (0, f"{best}\n", "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--seed", "1e23"], 2, "'1e23' is not a whole number"),
        (["--seed", str(10**23)], 2, f"seed={10**23}; give an integer from 0 to 4294967295"),
        (["--tokens", "0"], 2, "--max-new-tokens 0 counts"),
        (["--max-new-tokens", "-3"], 2, "--max-new-tokens -3 counts"),
        (["--samples", "0"], 2, "--samples 0 counts"),
        (["--temperature", "-1"], 2, "temperature=-1.0"),
        (["--temperature", "nan"], 2, "temperature=nan"),
        (["--top-p", "0"], 2, "top_p=0.0"),
        (["--length-penalty", "2"], 2, "give --num-beams too"),
        (["--num-beams", "3", "--temperature", "1"], 2, "draws nothing; leave out --temperature"),
        (["--num-beams", "3", "--samples", "2"], 2, "leave out --samples"),
        (["--num-beams", "14"], 2, "num_beams=14 is wider than the vocabulary of 13"),
        (["--num-beams", "0"], 2, "num_beams=0"),
        (["--stop", ""], 2, "a stop text is empty"),
        (["--num-beams", "2", "--stop", ""], 3, "the text is empty"),
        (["--num-beams", "2", "--stop", "abc"], 2, "stop text 'abc' is 3 tokens"),
        (["--prompt", ""], 3, "the text is empty"),
        (["--prompt", "xyz"], 3, "x"),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line_and_nothing_is_printed(run, words, code, said):
    given, printed, error = run(language_model(), *words)
    assert (given, printed) == (code, "")
    assert said in error
    assert error.count("\n") == 1


def test_a_source_must_be_given(run):
    code, _, error = run(speller())
    assert code == 2
    assert "say from what: --prompt" in error


def test_words_are_written_with_the_spaces_between_them():
    words = Words()
    words.fit(["a b c d e f g h i j k l"])
    torch.manual_seed(0)
    m = Model(TokenSpec(vocab_size=VOCAB), Transformer(24, 1, num_heads=3, causal=True), NextToken()).eval()
    loaded = Loaded(m, words, NextToken(), {"data": {}}, {})
    text = "".join(stream_text(loaded, "a b", 11))
    assert text.startswith(" ")
    assert len(text.split()) == 11
