"""`seqkit attention`: pictures and one page of a run's own attention maps, for each kind of example; refusals."""

import dataclasses
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from browser_checks import VIEWS, faults
from matplotlib.figure import Figure
from PIL import Image

from seqkit.analysis.attention_maps import attention_maps, entropy
from seqkit.backbones import GRU, LSTM, EncoderDecoder, RNNDecoder, Transformer
from seqkit.cli.main import main
from seqkit.config import Config
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.objectives import Classify, Seq2Seq
from seqkit.registry import components
from seqkit.report import attention
from seqkit.report.attention import MAX_TOKENS, MAX_UNCUT, view_attention, view_example, view_input
from seqkit.report.attention_heatmaps import is_even
from seqkit.runs.mixture import load
from seqkit.runs.prepare import data_module
from seqkit.runs.summary import Summary
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers import Characters, Patches


class OnAccelerator(torch.Tensor):
    """Stands for a tensor on an accelerator, whose numbers numpy cannot read before `cpu`."""

    def numpy(self, **_):
        raise TypeError("can't convert this device type tensor to numpy")

    def cpu(self, *_, **__):
        return self.as_subclass(torch.Tensor)


def test_attention_on_an_accelerator_is_drawn(tmp_path, monkeypatch, quick):
    def far(model, batch):
        maps = attention_maps(model, batch)
        return [
            dataclasses.replace(one, weights=one.weights.as_subclass(OnAccelerator)) for one in maps
        ]

    monkeypatch.setattr(attention, "attention_maps", far)
    assert view_attention(
        classifier(Transformer(8, 2, num_heads=2)), "abcab", "abcab", tmp_path / "view"
    ).exists()


def headings_of(path):
    return re.findall("<h2>(.*)</h2>", path.read_text(encoding="utf-8"))


def untrained(backbone, objective, tokenizer):
    """A run that was never trained, as `load` would give it."""
    torch.manual_seed(0)
    summary = Summary.model_construct(
        recipe="test/any", backbone=type(backbone).__name__, versions={"seqkit": "0"}
    )
    model = Model(tokenizer.spec, backbone, objective).eval()
    return TrainedModel(model, tokenizer, objective, Config({}), summary, Path())


def letters(text="abcdefgh "):
    tokenizer = Characters()
    tokenizer.fit([text])
    return tokenizer


def classifier(backbone):
    objective = Classify()
    objective.fit([0, 1], None)
    return untrained(backbone, objective, letters())


def translator(encoder, decoder):
    """From lower-case to upper-case letters, at most 7."""
    objective = Seq2Seq(Characters())
    objective.fit(["ABCDEFG"], None)
    return untrained(EncoderDecoder(encoder, decoder), objective, letters())


@pytest.fixture
def quick(monkeypatch):
    """Figures are made but not drawn, which takes seconds."""
    monkeypatch.setattr(attention, "svg", lambda *_: "<svg></svg>")


# ── kinds of example ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_text_gives_a_page_of_the_runs_own_maps(trained, tmp_path):
    path, said = view_input(trained("next token"), "To be, or not", tmp_path / "view")
    page = path.read_text(encoding="utf-8")
    assert said is None
    assert [one.name for one in path.parent.iterdir()] == ["attention.html"]
    run = load(trained("next token"))
    batch = TokenBatch.collate([run.tokenizer.encode("To be, or not")])
    (one,) = attention_maps(run.model, batch)
    for head, nats in enumerate(entropy(one.weights, batch.valid)[0]):
        assert f"layer 0 · head {head}" in page
        assert f">{nats:.2f} of " in page
    assert "the last query, from which the next token is predicted" in page


def test_the_example_is_drawn_with_rollout_in_times_the_average(
    trained, tmp_path, monkeypatch, quick
):
    seen = []
    monkeypatch.setattr(attention, "attended", lambda *given: seen.append(given[-1]) or Figure())
    view_input(trained("next token"), "To be", tmp_path)
    run = load(trained("next token"))
    (one,) = attention_maps(run.model, TokenBatch.collate([run.tokenizer.encode("To be")]))
    rollout = 0.5 * one.weights[0].numpy().mean(axis=0) + 0.5 * np.eye(5)
    np.testing.assert_allclose(seen[0], 5 * rollout[-1], atol=1e-5)
    view_attention(run := classifier(Transformer(8, 1, num_heads=2)), "abc", "abc", tmp_path)
    (one,) = attention_maps(run.model, TokenBatch.collate([run.tokenizer.encode("abc")]))
    rollout = 0.5 * one.weights[0].numpy().mean(axis=0) + 0.5 * np.eye(3)
    np.testing.assert_allclose(seen[1], 3 * rollout.mean(axis=0), atol=1e-5)


@pytest.mark.slow
def test_an_image_from_its_file(trained, tmp_path):
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(tmp_path / "digit.png")
    path, said = view_input(trained("classify"), str(tmp_path / "digit.png"), tmp_path / "view")
    assert headings_of(path) == ["Attention", "Attention on the example"]
    assert "the mean over all queries" in path.read_text(encoding="utf-8")
    assert said.startswith("Predicted: ")


@pytest.mark.slow
def test_of_a_file_of_several_molecules_the_first_is_shown(trained, tmp_path):
    (tmp_path / "two.smi").write_text("CCN\nCCO\n", encoding="utf-8")
    path, _ = view_input(trained("regress"), str(tmp_path / "two.smi"), tmp_path / "two")
    page = path.read_text(encoding="utf-8")
    assert "Input: CCN<" in page
    assert "The first of 2 examples in it is shown." in page
    assert "N2" in page


@pytest.mark.slow
def test_the_page_and_the_terminal_say_what_is_predicted_and_what_is_true(
    trained, tmp_path, quick, capsys
):
    folder = trained("classify")
    run = load(folder)
    samples = data_module(run.config, run.tokenizer, run.objective).splits().test
    (predicted,), true = run.predict([samples[2].raw]), run.objective.classes[samples[2].label]
    path, said = view_example(folder, 2, tmp_path / "view")
    assert said.startswith(f"Predicted: {predicted} (probability 0.")
    assert said.endswith(f"; true: {true}")
    assert said in path.read_text(encoding="utf-8")
    assert main(["attention", str(folder), "--example", "2", "--out", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        said,
        str(tmp_path / "other" / "attention.html"),
    ]
    _, said = view_input(trained("regress"), "CCCO", tmp_path / "one")
    (number,) = load(trained("regress")).predict(["CCCO"])
    assert float(said.removeprefix("Predicted: ")) == pytest.approx(number, rel=1e-3)


def test_a_graph_of_the_runs_own_data(trained, tmp_path, quick):
    path, _ = view_example(trained("nodes"), 0, tmp_path / "view")
    assert "Input: test data, " in path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="example 1"):
        view_example(trained("nodes"), 1, tmp_path / "view")


def test_cross_attention_has_a_row_for_each_generated_token_and_the_next(
    tmp_path, monkeypatch, quick
):
    run = translator(
        GRU(16), RNNDecoder(16, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention))
    )
    monkeypatch.setattr(Seq2Seq, "predict", lambda *_: torch.tensor([[1, 3, -100]]))
    seen = []
    draw = attention.heatmaps
    monkeypatch.setattr(attention, "heatmaps", lambda *given: seen.append(given) or draw(*given))
    page = view_attention(run, "abc d", "abc d", tmp_path / "view").read_text(encoding="utf-8")
    ((weights, queries, keys, _),) = seen
    assert (queries, keys) == (["B", "D", "eos"], ["a", "b", "c", "␣", "d"])
    assert [layer.shape for layer in weights] == [(1, 3, 5)]
    assert "Generated: B D<" in page
    assert run.objective.longest == 7
    monkeypatch.setattr(Seq2Seq, "predict", lambda *_: torch.full((1, 7), 2))
    view_attention(run, "abc d", "abc d", tmp_path / "view")
    assert seen[-1][1] == [*"CCCCCCC", "…"], (
        "cut at the longest: the next token is not known to be eos"
    )


def test_encoder_decoder_and_cross_attention_have_sections_of_their_own(tmp_path, quick):
    decoder = Transformer(
        16, 1, num_heads=2, causal=True, block=partial(PreNormBlock, cross_attention=True)
    )
    run = translator(Transformer(16, 2, num_heads=2), decoder)
    own = ["Attention of the decoder", "Cross-attention of the decoder"]
    both = ["Attention of the encoder", "Attention on the example", *own]
    assert headings_of(view_attention(run, "abc", "abc", tmp_path / "view")) == both
    alone = untrained(decoder, run.objective, letters())  # a decoder without an encoder
    assert headings_of(view_attention(alone, "abc", "abc", tmp_path / "view")) == own


def test_a_model_that_generates_bos_is_shown_as_it_is(tmp_path, monkeypatch, quick):
    run = translator(
        GRU(16), RNNDecoder(16, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention))
    )
    monkeypatch.setattr(Seq2Seq, "predict", lambda *_: torch.tensor([[7, 0, -100]]))
    page = view_attention(run, "abc", "abc", tmp_path / "view").read_text(encoding="utf-8")
    assert "Generated: bos A<" in page


SETTINGS = {
    "TopKAttention": {"k": 3},
    "SlidingWindowAttention": {"size": 2},
    "LinformerAttention": {"max_tokens": 11, "rank": 3},
    "LSHAttention": {"bucket_size": 2},
}


@pytest.mark.parametrize(
    "name", [name for name in components("mechanism") if name != "EdgeAttention"]
)
def test_every_mechanism_can_be_drawn(name, tmp_path, quick):
    mechanism = partial(components("mechanism")[name].load(), **SETTINGS.get(name, {}))
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))
    run = classifier(Transformer(16, 1, num_heads=2, block=block))
    path = view_attention(run, "abcabcab", "abcabcab", tmp_path / "view")
    is_signed = name == "LinformerAttention"
    assert ("have no entropy, and no rollout" in path.read_text(encoding="utf-8")) == is_signed
    assert ("Attention on the example" in headings_of(path)) == (not is_signed)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_loads_nothing_and_runs_nothing(trained, tmp_path):
    page = view_input(trained("next token"), "To be", tmp_path)[0].read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b", page)
    rest = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[\w/]+"', "", page)  # names, not addresses
    assert "http:" not in rest
    assert "https:" not in rest
    assert all(link.startswith(("#", "data:")) for link in re.findall(r'href="([^"]*)"', rest))


def test_what_a_user_typed_is_text_and_nothing_else(tmp_path):
    raw = "<script>alert('$x$')</script>"
    objective = Classify()
    objective.fit([0, 1], None)
    run = untrained(Transformer(8, 1, num_heads=1), objective, letters(raw))
    page = view_attention(run, raw, raw, tmp_path / "view").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_long_text_is_cut_and_the_page_says_so(tmp_path, quick):
    run, raw = classifier(Transformer(8, 1, num_heads=1)), "abc " * 500
    page = view_attention(run, raw, raw, tmp_path / "view").read_text(encoding="utf-8")
    assert f"The first {MAX_TOKENS} of 2,000 tokens are shown." in page
    assert len(re.findall("abc ", page)) == 74, "the input is named by its beginning"
    raw = "abcd" * (MAX_TOKENS // 4)
    assert "are shown" not in view_attention(run, raw, raw, tmp_path / "view").read_text(
        encoding="utf-8"
    )


def test_an_earlier_view_stays_where_the_new_one_is_refused(tmp_path, quick):
    run = classifier(Transformer(8, 1, num_heads=2))
    before = view_attention(run, "abc", "abc", tmp_path).read_bytes()
    with pytest.raises(DataError):
        view_attention(run, "xyz", "xyz", tmp_path)
    assert (tmp_path / "attention.html").read_bytes() == before


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_without_attention_says_so(tmp_path):
    with pytest.raises(UsageError, match=r"LSTM .*--model.backbone Transformer"):
        view_attention(classifier(LSTM(8)), "abc", "abc", tmp_path / "view")
    assert not (tmp_path / "view").exists()


def test_a_mechanism_without_weights_says_so(tmp_path, monkeypatch):
    def none(*_):
        raise ValueError("Additive has no weights to show")

    monkeypatch.setattr(AdditiveAttention, "attention_weights", none)
    block = partial(
        PreNormBlock, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention)
    )
    run = classifier(Transformer(8, 1, num_heads=1, block=block))
    monkeypatch.setattr(AdditiveAttention, "forward", lambda _self, _q, _k, v, *_: v)
    with pytest.raises(UsageError, match="Additive"):
        view_attention(run, "abc", "abc", tmp_path / "view")
    assert not any(module._forward_hooks for module in run.model.modules())


@pytest.mark.parametrize(
    ("settings", "num_tokens"), [({}, 1089), ({"num_prefix_tokens": 1, "positions": "index"}, 1090)]
)
def test_an_image_of_too_many_patches_is_refused_not_cut(settings, num_tokens, tmp_path):
    objective = Classify()
    objective.fit([0, 1], None)
    run = untrained(
        Transformer(8, 1, num_heads=1), objective, Patches(1, resize=(33, 33), **settings)
    )
    with pytest.raises(DataError, match=f"{num_tokens:,} tokens.*{MAX_UNCUT:,}"):
        view_attention(run, "large", torch.zeros(1, 33, 33), tmp_path / "view")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--input", "no.png"], 3, r".*'no\.png'.*"),
        (["--input", "some words"], 3, "some words: .*"),
        ([], 2, ".*--input or --example.*"),
        (["--input", "digit.png", "--out", "taken"], 2, "--out taken .*"),
    ],
)
def test_a_mistake_is_one_line_and_its_exit_code(
    words, code, line, trained, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "digit.png")
    try:
        got = main(["attention", str(trained("classify")), *words])
    except SystemExit as done:
        got = done.code
    assert got == code
    assert re.fullmatch(rf"seqkit attention: {line}\n", capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digit.png", "taken"]


def test_a_folder_that_is_no_run_is_one_line(tmp_path, capsys):
    assert main(["attention", str(tmp_path), "--input", "x"]) == 2
    assert capsys.readouterr().err.startswith(
        f"seqkit attention: {tmp_path} is no run: it has no config.yaml"
    )


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def view(trained, tmp_path_factory):
    """kind → the attention page of a test example of that run, written once."""
    pages = {}

    def page(kind):
        if kind not in pages:
            pages[kind], _ = view_example(trained(kind), 0, tmp_path_factory.mktemp("view"))
        return pages[kind]

    return page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width", "scheme"), [("next token", *VIEWS[1]), ("retrieval", *VIEWS[0])]
)
def test_a_browser_shows_attention_without_faults(browser, view, kind, width, scheme):
    assert faults(browser, view(kind), width, scheme) == []


@pytest.mark.slow
def test_on_a_phone_a_picture_fits_or_the_page_says_that_it_scrolls(browser, view):
    hints = []
    for kind in ("next token", "classify"):
        browser.show(view(kind), 390)
        for wide, hinted in browser.evaluate(
            "[...document.querySelectorAll('figure.wide')].map(one => [one.scrollWidth > one.clientWidth,"
            " one.previousElementSibling.matches('.sideways') && one.previousElementSibling.checkVisibility()])"
        ):
            assert wide == hinted
            hints.append(hinted)
    assert set(hints) == {True, False}


def test_heads_that_attend_to_all_they_see_alike_are_counted():
    causal = np.tril(np.ones((6, 6)))
    even = causal / causal.sum(axis=1, keepdims=True)
    to_a_sink = 0.7 * even
    sharp = np.eye(6)
    mild = even * np.linspace(0.2, 2, 6)
    mild /= mild.sum(axis=1, keepdims=True)
    assert [is_even(one) for one in (even, to_a_sink, np.full((4, 5), 0.2))] == [True] * 3
    assert not any(is_even(one) for one in (sharp, mild, np.eye(1)))
    told = attention._evenness([np.stack([even, sharp]), np.stack([sharp, even])])
    assert "2 of the 4 heads attend about evenly" in told
    assert "1 of the 2 heads attends" in attention._evenness([np.stack([even, sharp])])
    assert attention._evenness([np.stack([sharp])]) == ""


def test_the_label_of_the_colour_bar_is_no_longer_than_the_bar(tmp_path, monkeypatch):
    figures = []
    draw = attention.svg
    monkeypatch.setattr(attention, "svg", lambda *given: figures.append(given[0]) or draw(*given))
    view_attention(classifier(Transformer(8, 1, num_heads=1)), "abc", "abc", tmp_path / "view")
    bar = figures[-1].axes[-1]
    assert bar.yaxis.label.get_window_extent().height <= bar.bbox.height
