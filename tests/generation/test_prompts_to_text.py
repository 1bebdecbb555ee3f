"""Text from trained models: streamed, whole, in batches, by beam search, with stop strings; and by the command."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from generating import SOURCE_VOCAB, VOCAB, generating_model

from seqkit.backbones import GRU, Transformer
from seqkit.config import Config
from seqkit.errors import DataError
from seqkit.generation import BeamSearch, Sampling, generate, generate_texts, stream_text
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import Learned
from seqkit.objectives import Classify, NextToken
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.runs.summary import Summary
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers import Bytes, Characters, Patches, Words

LETTERS = "abcdefghijkl\n"
GREEDY = Sampling(temperature=0)


def trained_model(model, tokenizer, objective, window=None) -> TrainedModel:
    config = Config({"data": {"window": window}})
    summary = Summary.model_construct()
    return TrainedModel(model, tokenizer, objective, config, summary, Path("runs/mine"))


def language_model(window=31) -> TrainedModel:
    assert len(LETTERS) == VOCAB
    return trained_model(generating_model(), Characters(LETTERS), NextToken(), window)


def speller() -> TrainedModel:
    """Letters from letters."""
    objective = Seq2Seq(Characters("abcdefghijk"), tied=False)
    objective.fit(["abc", "hijkab"], None)
    return trained_model(
        generating_model("GRU, Bahdanau"), Characters("qrstuvw"[:SOURCE_VOCAB]), objective
    )


def bytes_model() -> TrainedModel:
    torch.manual_seed(3)
    m = Model(Bytes().spec, Transformer(24, 1, num_heads=3, causal=True), NextToken())
    torch.nn.init.normal_(m.head.linear.weight)
    return trained_model(m.eval(), Bytes(), NextToken())


@pytest.mark.parametrize("made", [language_model, lambda: language_model(window=5), bytes_model])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=7)])
def test_pieces_together_are_the_decoded_ids(made, sampling):
    trained = made()
    context_length = trained.config["data"].get("window")
    (ids,) = generate(
        trained.model,
        [trained.tokenizer.encode("ab").content],
        41,
        strategy=sampling,
        context_length=context_length,
    )
    pieces = list(stream_text(trained, "ab", 41, sampling=sampling))
    assert "".join(pieces) == trained.tokenizer.decode(ids)
    assert len(pieces) > 20
    assert generate_texts(trained, ["ab"], 41, strategy=sampling) == ["".join(pieces)]


def test_an_incomplete_character_waits_for_its_other_bytes(monkeypatch):
    import seqkit.generation.prompts_to_text

    trained = bytes_model()
    ids = [torch.tensor([i]) for i in "a\N{SNOWMAN}b\N{GREEK SMALL LETTER PI}".encode()]
    monkeypatch.setattr(
        seqkit.generation.prompts_to_text, "stream", lambda *args, **settings: iter(ids)
    )
    assert list(stream_text(trained, "x", 7)) == [
        "a",
        "\N{SNOWMAN}",
        "b",
        "\N{GREEK SMALL LETTER PI}",
    ]
    cut = ids[:-1]  # the model stopped inside a character, which is flushed as such
    monkeypatch.setattr(
        seqkit.generation.prompts_to_text, "stream", lambda *args, **settings: iter(cut)
    )
    assert list(stream_text(trained, "x", 6)) == [
        "a",
        "\N{SNOWMAN}",
        "b",
        "\N{REPLACEMENT CHARACTER}",
    ]


def test_a_text_ends_before_a_stop_string():
    trained = language_model()
    free = "".join(stream_text(trained, "ab", 41))
    stop = free[5:8]
    assert "".join(stream_text(trained, "ab", 41, stop=[stop])) == free[: free.index(stop)]
    assert (
        "".join(stream_text(trained, "ab", 41, stop=["no such text", stop, free[30]]))
        == free[: min(free.index(stop), free.index(free[30]))]
    )
    # begins like what comes, but is another text
    almost = free[5:7] + ("a" if free[7] != "a" else "b")
    assert almost not in free
    assert "".join(stream_text(trained, "ab", 41, stop=[almost])) == free
    # the prompt is no part of the text
    assert "".join(stream_text(trained, "ab", 41, stop=["ab" + free[0]])) == free
    with pytest.raises(ValueError, match="a stop text is empty"):
        next(stream_text(trained, "ab", 41, stop=[""]))


def test_several_prompts_are_continued_as_if_alone():
    trained, prompts = language_model(), ["abc", "k", "dd\n"]
    for stop in ([], ["a"]):
        together = generate_texts(trained, prompts, 23, strategy=Sampling(seed=4), stop=stop)
        alone = ["".join(stream_text(trained, p, 23, sampling=Sampling(seed=4 + i), stop=stop)) for i, p in
                 enumerate(prompts)]  # fmt: skip
        assert together == alone
    assert len(set(map(len, together))) > 1


def test_beam_search_gives_the_best_text_and_takes_no_stop_text():
    trained = language_model()
    (text,) = generate_texts(trained, ["ab"], 9, strategy=BeamSearch(3))
    (ids,) = generate(
        trained.model,
        [trained.tokenizer.encode("ab").content],
        9,
        strategy=BeamSearch(3),
        context_length=31,
    )
    assert text == trained.tokenizer.decode(ids)
    with pytest.raises(ValueError, match="leave stop out"):
        generate_texts(trained, ["ab"], 9, strategy=BeamSearch(3), stop=["a"])


@pytest.mark.parametrize("strategy", [GREEDY, BeamSearch(3)])
def test_texts_that_outgrow_the_window_of_training_start_afresh_from_half_of_it(strategy):
    trained = trained_model(generating_model(), Characters(LETTERS), NextToken(), 4)
    prompt = trained.tokenizer.encode("abc").content
    (ids,) = generate(trained.model, [prompt], 13, strategy=strategy, context_length=4)
    (unlimited,) = generate(trained.model, [prompt], 13, strategy=strategy)
    assert generate_texts(trained, ["abc"], 13, strategy=strategy) == [
        trained.tokenizer.decode(ids)
    ]
    assert not ids.equal(unlimited)


@pytest.mark.parametrize("strategy", [GREEDY, Sampling(seed=2), BeamSearch(3)])
def test_a_target_is_generated_from_the_source_up_to_the_end_id(strategy):
    trained = speller()
    objective, tokenizer = trained.objective, trained.tokenizer
    texts = generate_texts(trained, ["qrs", "w"], strategy=strategy)
    for i, (source, text) in enumerate(zip(["qrs", "w"], texts)):
        own = Sampling(seed=2 + i) if strategy == Sampling(seed=2) else strategy
        (ids,) = generate(
            trained.model, [torch.tensor(objective.start_ids)], 7, strategy=own, stop=[objective.eos_id],
            source=TokenBatch.collate([tokenizer.encode(source)]),
        )  # fmt: skip
        assert text == objective.target.decode(ids[objective.is_text(ids)])
        if isinstance(own, Sampling):
            assert "".join(stream_text(trained, source, sampling=own)) == text
    assert max(map(len, texts)) <= 7  # the longest training label, and end
    assert any(texts)


def test_greedy_targets_are_the_objectives_predictions():
    trained, sources = speller(), ["qrs", "w", "ttuuvv"]
    batch = TokenBatch.collate([trained.tokenizer.encode(source) for source in sources])
    expected = trained.objective.decode(trained.objective.predict(trained.model, batch))
    ours = generate_texts(trained, sources, trained.objective.longest, strategy=GREEDY)
    assert ours == expected


def test_a_run_without_text_is_refused():
    objective = Classify()
    objective.fit([0, 1], None)
    patches = Patches(2)
    trained = trained_model(
        Model(patches.spec, GRU(24, causal=True), objective), patches, objective
    )
    with pytest.raises(ValueError, match="Patches"):
        next(stream_text(trained, torch.zeros(1, 4, 4), 3))


class HalfSteps(Characters):
    """Half a unit from one letter to the next."""

    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions / 2)


class FromOne(Characters):
    """The first letter stands at 1."""

    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions + 1)


@pytest.mark.parametrize("tokenizer", [HalfSteps, FromOne])
def test_a_tokenizer_that_does_not_count_tokens_is_refused(tokenizer):
    trained = trained_model(generating_model(), tokenizer(LETTERS), NextToken(), 31)
    with pytest.raises(
        ValueError, match=f"{tokenizer.__name__} gives positions other than 0, 1, 2, …"
    ):
        next(stream_text(trained, "ab", 3))
    with pytest.raises(ValueError, match="gives positions other than"):
        generate_texts(trained, ["a", "abc"], 3)


class Unordered(Characters):
    """Letters without positions."""

    @property
    def spec(self):
        return replace(super().spec, num_axes=0)

    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions[:, :0])


def test_text_of_a_tokenizer_without_positions_is_generated():
    trained = trained_model(generating_model(num_axes=0), Unordered(LETTERS), NextToken(), 31)
    (ids,) = generate(
        trained.model,
        [trained.tokenizer.encode("ab").content],
        7,
        strategy=GREEDY,
        context_length=31,
    )
    assert generate_texts(trained, ["ab"], 7, strategy=GREEDY) == [trained.tokenizer.decode(ids)]


def test_a_prompt_that_cannot_be_encoded_is_a_data_error():
    for prompt in ("", "xyz"):
        with pytest.raises(DataError):
            next(stream_text(language_model(), prompt, 3))


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `seqkit generate` on a model of ours: exit code, stdout, stderr."""
    from seqkit.cli.main import main

    def command(trained, *words):
        monkeypatch.setattr("seqkit.runs.summary.check_trained", lambda _: None)
        monkeypatch.setattr("seqkit.runs.trained_model.load_one", lambda *_: trained)
        try:
            code = main(["generate", "runs/mine", *words])
        except SystemExit as done:  # argparse's own refusals
            code = done.code
        return code, *capsys.readouterr()

    return command


def test_the_command_prints_prompt_and_continuation(run):
    trained = language_model()
    text = "".join(stream_text(trained, "ab", 17, sampling=Sampling(temperature=0.8, seed=3)))
    words = ["--prompt", "ab", "--tokens", "17", "--seed", "3"]
    assert run(trained, *words) == (0, f"ab{text}\n", "")
    assert run(trained, *words, "--stop", text[5]) == (0, f"ab{text[: text.index(text[5])]}\n", "")
    sampling = Sampling(temperature=1.1, top_k=9, top_p=0.9, min_p=0.05, repetition_penalty=1.5)
    text = "".join(stream_text(trained, "ab", 17, sampling=sampling))
    words = [
        "--temperature",
        "1.1",
        "--top-k",
        "9",
        "--top-p",
        "0.9",
        "--min-p",
        "0.05",
        "--repetition-penalty",
        "1.5",
    ]
    assert run(trained, "--prompt", "ab", "--max-new-tokens", "17", *words)[1] == f"ab{text}\n"


def test_the_command_numbers_several_texts(run):
    trained = language_model()
    texts = generate_texts(trained, ["ab", "ab", "k", "k"], 7, strategy=Sampling(temperature=0.8))
    code, printed, _ = run(
        trained, "--prompt", "ab", "--prompt", "k", "--samples", "2", "--tokens", "7"
    )
    assert code == 0
    expected = [
        f"--- {i} of 4 ---\n{p}{text}\n"
        for i, (p, text) in enumerate(zip(["ab", "ab", "k", "k"], texts), 1)
    ]
    assert printed == "".join(expected)


def test_the_command_searches_with_beams(run):
    trained = language_model()
    (text,) = generate_texts(trained, ["ab"], 7, strategy=BeamSearch(5, length_penalty=0.5))
    words = ["--prompt", "ab", "--tokens", "7", "--num-beams", "5", "--length-penalty", "0.5"]
    assert run(trained, *words) == (0, f"ab{text}\n", "")


def test_the_command_generates_from_a_source(run):
    trained = speller()
    greedy = generate_texts(trained, ["qrs", "w"], strategy=GREEDY)
    assert run(trained, "--prompt", "qrs", "--temperature", "0") == (0, f"{greedy[0]}\n", "")
    both = run(trained, "--prompt", "qrs", "--prompt", "w", "--temperature", "0")
    assert both == (0, f"qrs\t{greedy[0]}\nw\t{greedy[1]}\n", "")
    (best,) = generate_texts(trained, ["qrs"], strategy=BeamSearch(3))
    assert run(trained, "--prompt", "qrs", "--num-beams", "3") == (0, f"{best}\n", "")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--seed", "1e23"], 2, "'1e23' is not a whole number"),
        (["--seed", str(10**23)], 2, f"seed={10**23}; give an integer from 0 to 4294967295"),
        (["--tokens", "0"], 2, "--max-new-tokens is 0"),
        (["--max-new-tokens", "-3"], 2, "--max-new-tokens is -3"),
        (["--samples", "0"], 2, "--samples is 0"),
        (["--temperature", "-1"], 2, "temperature=-1.0"),
        (["--temperature", "nan"], 2, "temperature=nan"),
        (["--top-p", "0"], 2, "top_p=0.0"),
        (["--num-beams", "3", "--temperature", "1"], 2, "samples nothing; leave out --temperature"),
        (["--num-beams", "3", "--samples", "2"], 2, "leave out --samples"),
        (["--num-beams", "14"], 2, "num_beams=14 is wider than the vocabulary of 13"),
        (["--num-beams", "0"], 2, "num_beams=0"),
        (["--stop", ""], 2, "a stop text is empty"),
        (["--num-beams", "2", "--stop", "a"], 2, "leave stop out"),
        (["--prompt", ""], 3, "the text is empty"),
        (["--prompt", "xyz"], 3, "x"),
    ],
    ids=str,
)
def test_a_wrong_option_is_one_line_and_nothing_is_printed(run, words, code, message):
    given, printed, error = run(language_model(), *words)
    assert (given, printed) == (code, "")
    assert message in error
    assert error.count("\n") == 1


def test_more_tokens_than_a_table_has_positions_are_refused_with_the_flag_and_without_what_does_not_apply(
    run,
):
    position = partial(Learned, sizes=[6])
    model = generating_model("Transformer, Transformer", position=position)
    objective = Seq2Seq(Characters("abcdefghijk"), tied=False)
    objective.fit(["abc", "hijkab"], None)
    trained = trained_model(model, Characters("qrstuvw"[:SOURCE_VOCAB]), objective)
    code, _, said = run(trained, "--prompt", "qrs", "--tokens", "9")
    assert code == 2
    assert "generate fewer (max_new_tokens, --tokens on the command line)\n" in said
    code, _, said = run(trained, "--prompt", "qrsqrsqrs", "--tokens", "3")
    assert code != 0
    assert "shorten the input, or train with larger sizes" in said


def test_a_source_must_be_given(run):
    code, _, error = run(speller())
    assert code == 2
    assert "a source; give it: --prompt" in error


def test_generated_words_have_the_spaces_between_them():
    words = Words()
    words.fit(["a b c d e f g h i j k l"])
    torch.manual_seed(0)
    m = Model(
        TokenSpec(vocab_size=VOCAB), Transformer(24, 1, num_heads=3, causal=True), NextToken()
    ).eval()
    trained = trained_model(m, words, NextToken())
    text = "".join(stream_text(trained, "a b", 11))
    assert text.startswith(" ")
    assert len(text.split()) == 11
