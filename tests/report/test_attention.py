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
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.objectives import Classify, Seq2Seq
from seqkit.progress import track
from seqkit.registry import components
from seqkit.report import attention
from seqkit.report.attention import MAX_TOKENS, MAX_UNCUT, uniform_heads, view_attention, view_example, view_input
from seqkit.report.modality.text import TextRenderer
from seqkit.runs.mixture import load
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers import Characters, Patches

ONE_STACK = ["attention.html", "attention.png", "rollout.png"]


class OnAccelerator(torch.Tensor):
    """Stands for a tensor on an accelerator, whose numbers numpy cannot read before `cpu`."""

    def numpy(self, **_):
        raise TypeError("can't convert this device type tensor to numpy")

    def cpu(self, *_, **__):
        return self.as_subclass(torch.Tensor)


def test_attention_on_an_accelerator_is_drawn(tmp_path, monkeypatch):
    def far(model, batch):
        maps = attention_maps(model, batch)
        return [dataclasses.replace(one, weights=one.weights.as_subclass(OnAccelerator)) for one in maps]

    monkeypatch.setattr(attention, "attention_maps", far)
    run = classifier(Transformer(8, 2, num_heads=2))
    attention._view(Path(), run, "abcab", "abcab", [], tmp_path / "view")
    assert files_in(tmp_path / "view") == ONE_STACK


def files_in(out):
    return sorted(path.name for path in out.iterdir())


def untrained(backbone, objective, tokenizer):
    """A run that was never trained, as `load` would give it."""
    torch.manual_seed(0)
    summary = {"recipe": "test/any", "backbone": type(backbone).__name__, "versions": {"seqkit": "0"}}
    return TrainedModel(Model(tokenizer.spec, backbone, objective).eval(), tokenizer, objective, {}, summary, Path())


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
def given(monkeypatch):
    """Let `load` give this run, whatever its folder."""

    def give(run):
        monkeypatch.setattr(attention, "load_one", lambda _: run)
        return run

    return give


@pytest.fixture
def quick(monkeypatch):
    """Figures are made but not drawn, which takes seconds."""

    def save(_, path):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        return path

    monkeypatch.setattr(attention, "png", save)
    monkeypatch.setattr(attention, "svg", lambda _: "<svg></svg>")


# ── kinds of example ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_text_gives_a_page_and_pictures_of_the_runs_own_maps(trained, tmp_path):
    page = view_input(trained("next token"), "To be, or not", tmp_path / "view").read_text(encoding="utf-8")
    assert files_in(tmp_path / "view") == ONE_STACK
    for name in ONE_STACK[2:]:
        assert (tmp_path / "view" / name).read_bytes().startswith(b"\x89PNG")
    run = load(trained("next token"))
    batch = TokenBatch.collate([run.tokenizer.encode("To be, or not")])
    (one,) = attention_maps(run.model, batch)
    for head, nats in enumerate(entropy(one.weights, batch.valid)[0]):
        assert f"layer 0 · head {head} · {nats:.2f} nats" in page
    uniform = np.log(np.arange(1, 14)).mean()
    assert f"{uniform:.2f} for uniform attention" in page, "a causal query attends to the past only"
    assert "the last query, from which the next token is predicted" in page


def test_the_overlay_gets_rollout_and_attention_maps(trained, tmp_path, monkeypatch, quick):
    seen = []

    def overlay(_renderer, _raw, _tokens, summary):
        seen.append(summary)
        return Figure()

    monkeypatch.setattr(TextRenderer, "overlay", overlay)
    view_input(trained("next token"), "To be", tmp_path)
    run = load(trained("next token"))
    (one,) = attention_maps(run.model, TokenBatch.collate([run.tokenizer.encode("To be")]))
    weights = one.weights[0].numpy()
    np.testing.assert_allclose(seen[0].weights, weights[None])
    np.testing.assert_allclose(seen[0].rollout, 0.5 * weights.mean(axis=0) + 0.5 * np.eye(5), atol=1e-6)
    assert seen[0].last_query


def test_an_image_from_its_file(trained, tmp_path):
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(tmp_path / "digit.png")
    page = view_input(trained("classify"), str(tmp_path / "digit.png"), tmp_path / "view").read_text(encoding="utf-8")
    assert files_in(tmp_path / "view") == ONE_STACK
    assert "the image" in page
    assert "the mean over all queries" in page


def test_a_molecule_by_its_smiles(trained, tmp_path):
    page = view_input(trained("regress"), "CCCO", tmp_path / "one").read_text(encoding="utf-8")
    assert "O3" in page
    assert "A line between two nodes is the wider the more" in page


def test_of_a_file_of_several_examples_the_first_is_shown(trained, tmp_path, quick):
    (tmp_path / "two.smi").write_text("CCN\nCCO\n", encoding="utf-8")
    page = view_input(trained("regress"), str(tmp_path / "two.smi"), tmp_path / "two").read_text(encoding="utf-8")
    assert "Input: CCN<" in page
    assert "The first of 2 examples in it is shown." in page


def test_the_page_and_the_terminal_say_what_is_predicted_and_what_is_true(trained, tmp_path, quick, capsys):
    folder = trained("classify")
    run = load(folder)
    samples = data_module(run.config, run.tokenizer, run.objective).splits().test
    (predicted,), true = run.predict([samples[2].raw]), run.objective.classes[samples[2].label]
    said = []
    page = view_example(folder, 2, tmp_path / "view", say=said.append).read_text(encoding="utf-8")
    assert said[0].startswith(f"Predicted: {predicted} (probability 0.")
    assert said[0].endswith(f"; true: {true}")
    assert said[0] in page
    assert main(["attention", str(folder), "--example", "2", "--out", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out.splitlines() == [said[0], str(tmp_path / "other" / "attention.html")]
    view_input(trained("regress"), "CCCO", tmp_path / "one", say=said.append)
    assert float(said[1].removeprefix("Predicted: ")) == pytest.approx(
        load(trained("regress")).predict(["CCCO"])[0], rel=1e-3
    )


def test_a_graph_of_the_runs_own_data(trained, tmp_path, quick):
    page = view_example(trained("nodes"), 0, tmp_path / "view").read_text(encoding="utf-8")
    assert files_in(tmp_path / "view") == ONE_STACK
    assert "Input: test data, " in page
    with pytest.raises(UsageError, match="example 1"):
        view_example(trained("nodes"), 1, tmp_path / "view")


def test_cross_attention_has_a_row_for_each_generated_token_and_the_next(given, tmp_path, monkeypatch, quick):
    run = given(translator(GRU(16), RNNDecoder(16, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention))))
    monkeypatch.setattr(Seq2Seq, "predict", lambda *_: torch.tensor([[1, 3, -100]]))
    seen = []
    draw = attention.heatmaps
    monkeypatch.setattr(attention, "heatmaps", lambda *given: seen.append(given) or draw(*given))
    page = view_attention(tmp_path, "abc d", "abc d", tmp_path / "view").read_text(encoding="utf-8")
    ((weights, queries, keys, _),) = seen
    assert (queries, keys) == (["B", "D", "eos"], ["a", "b", "c", "␣", "d"])
    assert [layer.shape for layer in weights] == [(1, 3, 5)]
    assert files_in(tmp_path / "view") == ["attention.html", "cross.png"]
    assert "Generated: B D<" in page
    assert run.objective.longest == 7
    monkeypatch.setattr(Seq2Seq, "predict", lambda *_: torch.full((1, 7), 2))
    view_attention(tmp_path, "abc d", "abc d", tmp_path / "view")
    assert seen[-1][1] == [*"CCCCCCC", "…"], "cut at the longest: the next token is not known to be eos"


def test_encoder_decoder_and_cross_attention_have_sections_of_their_own(given, tmp_path, quick):
    decoder = Transformer(16, 1, num_heads=2, causal=True, block=partial(PreNormBlock, cross_attention=True))
    given(translator(Transformer(16, 2, num_heads=2), decoder))
    page = view_attention(tmp_path, "abc", "abc", tmp_path / "view").read_text(encoding="utf-8")
    headings = re.findall("<h2>(.*)</h2>", page)
    assert headings == [
        "Attention of the encoder",
        "Attention on the example",
        "Attention of the decoder",
        "Cross-attention of the decoder",
    ]


def test_a_decoder_without_an_encoder_is_shown_as_decoder(given, tmp_path, quick):
    objective = Seq2Seq(Characters())
    objective.fit(["ABCDEFG"], None)
    decoder = Transformer(16, 1, num_heads=2, causal=True, block=partial(PreNormBlock, cross_attention=True))
    given(untrained(decoder, objective, letters()))
    page = view_attention(tmp_path, "abc", "abc", tmp_path / "view").read_text(encoding="utf-8")
    headings = re.findall("<h2>(.*)</h2>", page)
    assert headings == [
        "Attention of the decoder",
        "Cross-attention of the decoder",
    ]


def test_a_model_that_generates_bos_is_shown_as_it_is(given, tmp_path, monkeypatch, quick):
    given(translator(GRU(16), RNNDecoder(16, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention))))
    monkeypatch.setattr(Seq2Seq, "predict", lambda *_: torch.tensor([[7, 0, -100]]))
    page = view_attention(tmp_path, "abc", "abc", tmp_path / "view").read_text(encoding="utf-8")
    assert "Generated: bos A<" in page


SETTINGS = {
    "SlidingWindowAttention": {"size": 2},
    "LinformerAttention": {"max_tokens": 11, "rank": 3},
    "LSHAttention": {"bucket_size": 2},
}


@pytest.mark.parametrize("name", [name for name in components("mechanism") if name != "EdgeAttention"])
def test_every_mechanism_can_be_drawn(name, given, tmp_path, quick):
    mechanism = partial(components("mechanism")[name].load(), **SETTINGS.get(name, {}))
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))
    given(classifier(Transformer(16, 1, num_heads=2, block=block)))
    page = view_attention(tmp_path, "abcabcab", "abcabcab", tmp_path / "view").read_text(encoding="utf-8")
    assert ("have no entropy, and no rollout" in page) == (name == "LinformerAttention")
    assert ("rollout.png" in files_in(tmp_path / "view")) == (name != "LinformerAttention")


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_loads_nothing_and_runs_nothing(trained, tmp_path):
    page = view_input(trained("next token"), "To be", tmp_path).read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b", page)
    rest = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[\w/]+"', "", page)  # names, not addresses
    assert "http:" not in rest
    assert "https:" not in rest
    assert all(link.startswith(("#", "data:")) for link in re.findall(r'href="([^"]*)"', rest))


def test_what_a_user_typed_is_text_and_nothing_else(given, tmp_path):
    raw = "<script>alert('$x$')</script>"
    objective = Classify()
    objective.fit([0, 1], None)
    given(untrained(Transformer(8, 1, num_heads=1), objective, letters(raw)))
    page = view_attention(tmp_path, raw, raw, tmp_path / "view").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_long_text_is_cut_and_the_page_says_so(given, tmp_path, quick):
    given(classifier(Transformer(8, 1, num_heads=1)))
    raw = "abc " * 500
    page = view_attention(tmp_path, raw, raw, tmp_path / "view").read_text(encoding="utf-8")
    assert f"The first {MAX_TOKENS} of 2,000 tokens are shown." in page
    assert len(re.findall("abc ", page)) == 75, "the input is named by its beginning"
    raw = "abcd" * (MAX_TOKENS // 4)
    page = view_attention(tmp_path, raw, raw, tmp_path / "view").read_text(encoding="utf-8")
    assert "are shown" not in page


def test_a_new_view_replaces_an_earlier_one_and_nothing_else(given, tmp_path, quick):
    decoder = Transformer(16, 1, num_heads=2, causal=True, block=partial(PreNormBlock, cross_attention=True))
    given(translator(Transformer(16, 1, num_heads=2), decoder))
    view_attention(tmp_path, "abc", "abc", tmp_path)
    assert "decoder.png" in files_in(tmp_path)
    (tmp_path / "mine.png").write_bytes(b"mine")
    given(classifier(Transformer(8, 1, num_heads=2)))
    view_attention(tmp_path, "abc", "abc", tmp_path)
    assert files_in(tmp_path) == sorted([*ONE_STACK, "mine.png"])


def test_an_earlier_view_stays_where_the_new_one_is_refused(given, tmp_path, quick):
    given(classifier(Transformer(8, 1, num_heads=2)))
    before = view_attention(tmp_path, "abc", "abc", tmp_path).read_bytes()
    with pytest.raises(DataError):
        view_attention(tmp_path, "xyz", "xyz", tmp_path)
    assert (tmp_path / "attention.html").read_bytes() == before


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_view_that_takes_long_shows_how_far_it_is(given, tmp_path, monkeypatch, capsys, quick):
    monkeypatch.setattr("seqkit.report.attention.track", partial(track, patience=-1))
    monkeypatch.setattr("seqkit.progress.LINE_SECONDS", -1)
    given(classifier(Transformer(8, 1, num_heads=2)))
    view_attention(tmp_path, "abc", "abc", tmp_path / "out")
    error = capsys.readouterr().err
    assert "drawing attention: 1" in error
    assert "writing pictures: 1 of " in error


def test_a_run_without_attention_says_so(given, tmp_path):
    given(classifier(LSTM(8)))
    with pytest.raises(UsageError, match=r"LSTM .*--model.backbone Transformer"):
        view_attention(tmp_path, "abc", "abc", tmp_path / "view")
    assert not (tmp_path / "view").exists()


def test_a_mechanism_without_weights_says_so(given, tmp_path, monkeypatch):
    def none(*_):
        raise ValueError("Additive has no weights to show")

    monkeypatch.setattr(AdditiveAttention, "attention_weights", none)
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention))
    run = given(classifier(Transformer(8, 1, num_heads=1, block=block)))
    monkeypatch.setattr(AdditiveAttention, "forward", lambda _self, _q, _k, v, *_: v)
    with pytest.raises(UsageError, match="Additive"):
        view_attention(tmp_path, "abc", "abc", tmp_path / "view")
    assert not any(module._forward_hooks for module in run.model.modules())


def test_an_image_of_too_many_patches_is_refused_not_cut(given, tmp_path):
    objective = Classify()
    objective.fit([0, 1], None)
    given(untrained(Transformer(8, 1, num_heads=1), objective, Patches(1)))
    with pytest.raises(DataError, match=f"1,089 tokens.*{MAX_UNCUT:,}"):
        view_attention(tmp_path, "large", torch.zeros(1, 33, 33), tmp_path / "view")
    numbered = Patches(1, resize=(33, 33), num_prefix_tokens=1, positions="index")
    given(untrained(Transformer(8, 1, num_heads=1), objective, numbered))
    with pytest.raises(DataError, match="1,090 tokens"):
        view_attention(tmp_path, "large", torch.zeros(1, 33, 33), tmp_path / "view")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--input", "no.png"], 3, r".*'no\.png'.*"),
        (["--input", "some words"], 3, "some words: .*"),
        ([], 2, ".*--input --example.*"),
        (["--input", "digit.png", "--out", "taken"], 2, "--out taken .*"),
    ],
)
def test_a_mistake_is_one_line_and_its_exit_code(words, code, line, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "digit.png")
    try:
        got = main(["attention", str(trained("classify")), *words])
    except SystemExit as done:
        got = done.code
    assert got == code
    assert re.fullmatch(rf"seqkit attention: {line}\n", capsys.readouterr().err)
    assert files_in(tmp_path) == ["digit.png", "taken"]


def test_a_folder_that_is_no_run_is_one_line(tmp_path, capsys):
    assert main(["attention", str(tmp_path), "--input", "x"]) == 2
    assert capsys.readouterr().err.startswith(f"seqkit attention: {tmp_path} is no run: it has no config.yaml")


def test_heads_that_attend_uniformly_are_named():
    nats = np.array([[0.1, 2.0], [1.97, 1.5]])
    assert uniform_heads(nats, 2.0).strip() == (
        "2 of 4 heads attend almost uniformly here (98 % of that entropy or more): layer 0 head 1, layer 1 head 0."
    )
    assert uniform_heads(nats, 3.0) == ""
    assert uniform_heads(np.zeros((1, 1)), 0.0) == "", "one key alone"
    assert uniform_heads(np.full((3, 4), 2.0), 2.0).startswith(" All heads attend almost uniformly")
    many = np.where(np.arange(12) > 2, 2.0, 0.0).reshape(3, 4)
    assert uniform_heads(many, 2.0).endswith("or more)."), "nobody reads nine names"


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def view(trained, tmp_path_factory):
    """kind → the attention page of a test example of that run, written once."""
    pages = {}

    def page(kind):
        if kind not in pages:
            pages[kind] = view_example(trained(kind), 0, tmp_path_factory.mktemp("view"))
        return pages[kind]

    return page


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width", "scheme"), [("next token", *VIEWS[1]), ("retrieval", *VIEWS[0])])
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
