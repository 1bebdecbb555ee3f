"""No training begins with a model that breaks a law, unless it is allowed; then all that compares the run says so."""

import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import seqkit
from seqkit.backbones import GCN, GIN, GRU, Transformer
from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.errors import UsageError
from seqkit.interfaces import Adjacency, ModelInput, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken
from seqkit.registry import lookup
from seqkit.registry.plugins import import_plugins
from seqkit.report.headline import cautions, headline
from seqkit.runs.examined.given import Given
from seqkit.runs.examined.laws import broken_laws
from seqkit.runs.examined.model import examined, faults, grown
from seqkit.runs.prepare import prepare
from seqkit.runs.summary import read_summary

PLUGIN = Path(__file__).with_name("lawless_backbones.py")
with (
    pytest.MonkeyPatch.context() as patch
):  # other files list what is registered as they are collected
    patch.setattr(lookup, "_REGISTERED", {kind: {} for kind in lookup.KINDS})
    import_plugins([PLUGIN])
lawless = sys.modules.pop("lawless_backbones")
SPEC = TokenSpec(vocab_size=11)
OF_GRAPHS = TokenSpec(vocab_size=11, num_axes=0, num_edge_types=1)


class Texts:
    """Training examples of so many random ids each, with a class."""

    def __init__(self, *lengths, spec=SPEC):
        self.lengths = lengths
        generator = torch.Generator().manual_seed(0)
        self.tokens = []
        for n in lengths:
            ids = torch.randint(spec.vocab_size, (n,), generator=generator)
            self.tokens.append(Tokens(ids, torch.arange(float(n))[:, None]))

    def __getitem__(self, key):
        chosen = [self.tokens[i] for i in key[1]]
        return TokenBatch.collate(chosen), torch.zeros(len(chosen), dtype=torch.int64)


class Graphs(Texts):
    """Paths of so many nodes, with an edge between each and the next, both ways; and a class."""

    def __init__(self, *lengths):
        self.lengths = lengths
        generator = torch.Generator().manual_seed(0)
        self.tokens = []
        for n in lengths:
            ends = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
            edges = torch.cat([ends, ends.flip(0)], dim=1)
            adjacency = Adjacency(edges, torch.ones(edges.shape[1], dtype=torch.int64))
            ids = torch.randint(OF_GRAPHS.vocab_size, (n,), generator=generator)
            self.tokens.append(Tokens(ids, torch.zeros(n, 0), adjacency))


TEXTS = Texts(101, 77, 20)


def classify():
    objective = Classify()
    objective.fit([0, 1], None)
    return objective


def faults_of(backbone, objective=None, examples=TEXTS):
    objective = objective or NextToken()
    spec = OF_GRAPHS if isinstance(examples, Graphs) else SPEC
    if not backbone.supports_adjacency:  # as with model.adjacency=ignore
        spec = spec.without_edges()
    return faults(Model(spec, backbone, objective), objective, examples)


FUTURE = "no token attends to the future"


@pytest.mark.parametrize(
    ("backbone", "law"),
    [
        (lawless.AddsTheNext, FUTURE),
        (lawless.AddsTheNextLate, FUTURE),
        (lawless.AddsTheNextInFloat32, FUTURE),
        (lawless.AddsTheNextAtRandom, FUTURE),
        (lawless.NormalisesBatches, "in training mode, "),
        (lawless.RemembersPasses, "evaluation repeats"),
        (lawless.LeavesItsDropoutOn, "evaluation repeats"),
        (lawless.AddsTheNextBySteps, FUTURE),
        (lawless.CountsColumns, "padding changes nothing"),
    ],
)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_broken_law_is_named_with_its_size_and_the_backbone(backbone, law, depth):
    found = faults_of(backbone(24, depth))
    assert found[0].startswith(f"{backbone.__name__} breaks the law that ")
    assert law in found[0]
    assert 1e-5 < float(found[0].partition(" by ")[2].split()[0]) < 10


@pytest.mark.parametrize(
    "backbone",
    [lawless.Recurrent, lawless.ReadsThePast, lawless.DropsItsBranch, lawless.RoundsToFloat32,
     lawless.NormalisesTokens],
)  # fmt: skip
@pytest.mark.parametrize("objective", [NextToken, classify])
def test_sound_backbones_break_none(backbone, objective):
    assert faults_of(backbone(24, 2), objective()) == []


class Forgets(GRU):
    """A wrong state: that of a sequence is made smaller between two calls."""

    def run(self, embedded, cache):
        if cache is not None and cache.states[0] is not None:
            cache.states = [tuple(0.9 * part for part in state) for state in cache.states]
        return super().run(embedded, cache)


@pytest.mark.parametrize(("cls", "is_broken"), [(Forgets, True), (GRU, False)])
def test_a_cache_gives_what_one_pass_gives(cls, is_broken):
    law = "Forgets breaks the law that a cache gives what one pass gives: to go on from a cache"
    found = faults_of(cls(24, 2, causal=True))
    assert [one.startswith(law) for one in found] == [True] * is_broken


@pytest.mark.parametrize("objective", [NextToken, classify])
def test_of_long_examples_the_future_is_tested_far_away(objective):
    wraps = lawless.WrapsRound(24)
    assert faults_of(wraps, objective(), Texts(240, 200)) == []
    (found,) = faults_of(wraps, objective(), Texts(300, 200))
    assert FUTURE in found
    assert " of 299 " in found or " of 300 " in found
    assert faults_of(lawless.ReadsThePast(24), objective(), Texts(300, 200)) == []


@pytest.mark.parametrize(
    ("backbone", "law"),
    [
        (lawless.CountsNodes(24), "nodes in another order have the same hidden states"),
        (lawless.ForgetsEdges(24), "nothing crosses components"),
        (GIN(24, 2), None),
        (GCN(24, 2), None),
        (GRU(24, 2), None),
        (Transformer(24, 2, num_heads=3, causal=False), None),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_on_graphs_the_order_of_nodes_and_other_graphs_change_nothing(backbone, law):
    found = faults_of(backbone, classify(), Graphs(12, 9, 5))
    assert [law in one for one in found] == ([True] if law else [])


@pytest.mark.slow
def test_what_has_grown_in_training_is_seen_after_it(text_file):
    import_plugins([PLUGIN])
    keys = {"data": text_file, "data.window": 80, "model.backbone": "OpensAGate"}
    prepared = prepare(complete("text/char-lm", "debug", keys))
    assert examined(prepared) == grown(prepared) == []
    with torch.no_grad():
        prepared.model.backbone.gate.fill_(0.0)
    (found,) = grown(prepared)
    assert FUTURE in found
    assert found.endswith(" after training")


@pytest.mark.slow
def test_a_run_whose_leak_has_grown_is_compared_with_nothing(text_file, tmp_path, monkeypatch):
    monkeypatch.setattr("seqkit.runs.examined.model.grown", lambda prepared: ["It leaks"])
    keys = {"data": text_file, "data.window": 80, "trainer.max_steps": 2}
    run = seqkit.fit("text/char-lm", keys, preset="debug", out=tmp_path / "run")
    assert run.summary.broken_laws == ["It leaks"]
    assert "It leaks; the run is compared with nothing" in (run.folder / "log.txt").read_text()


def test_a_fault_after_column_64_needs_examples_that_long():
    assert faults_of(lawless.AddsTheNextLate(24), examples=Texts(60, 50)) == []


def test_what_does_not_predict_the_next_token_may_read_it():
    """A causal backbone says that it does not; a bidirectional one may."""
    bidirectional = Transformer(24, 1, num_heads=3, causal=False)
    assert faults_of(bidirectional, Masked()) == []
    assert faults_of(bidirectional, classify()) == []
    assert FUTURE in faults_of(lawless.AddsTheNext(24), classify())[0]


class _Shows(nn.Module):
    """An embedder that adds the content of the token, be it masked."""

    def __init__(self, embedder):
        super().__init__()
        self.embedder = embedder
        self.spec = embedder.spec

    def forward(self, batch, masked=None):
        embedded = self.embedder(batch, masked)
        return embedded.replace(hidden=embedded.hidden + 0.01 * self.embedder(batch).hidden)


def test_an_embedder_that_shows_masked_tokens_is_found():
    objective = Masked()
    model = Model(SPEC, Transformer(24, 1, num_heads=3, causal=False), objective)
    assert faults(model, objective, TEXTS) == []
    model.embedder = _Shows(model.embedder)
    assert (
        "_Shows breaks the law that masked tokens stay hidden" in faults(model, objective, TEXTS)[0]
    )


class SameToken(NextToken):
    """It forgets to shift."""

    def prepare(self, batch, label):
        return ModelInput(batch, None, batch.content)


class NextOfBoth(NextToken):
    """It predicts the next token, and does not ask for a causal backbone."""

    causal = None


@pytest.mark.slow
def test_the_target_is_not_among_the_inputs():
    causal = Transformer(24, 1, num_heads=3, causal=True)
    assert "SameToken breaks the law that the target is not" in faults_of(causal, SameToken())[0]
    assert faults_of(causal, NextOfBoth()) == []
    bidirectional = Transformer(24, 1, num_heads=3, causal=False)
    assert FUTURE in faults_of(bidirectional, NextOfBoth())[0]


class ShowsTheLabel(Classify):
    """It writes the class over the first token."""

    def prepare(self, batch, label):
        content = batch.content.clone()
        content[:, 0] = label
        return super().prepare(batch.replace(content=content), label)


def test_labels_reach_the_loss_alone():
    bidirectional = Transformer(24, 1, num_heads=3, causal=False)
    objective = ShowsTheLabel()
    objective.fit([0, 1], None)
    (said,) = faults_of(bidirectional, objective)
    assert said.startswith("ShowsTheLabel breaks the law that labels reach the loss alone")
    assert faults_of(bidirectional, classify()) == []


class Mixes(Transformer):
    """Sequences of one row see each other."""

    def forward(self, embedded, cache=None):
        return super().forward(embedded.replace(segments=None), cache)


@pytest.mark.parametrize("backbone", [Transformer, Mixes])
def test_packed_sequences_stay_apart(backbone):
    (text,) = Texts(30).tokens
    segments = torch.arange(30) // 10
    model = Model(SPEC, backbone(24, 1, num_heads=3, causal=True), NextToken())
    found = broken_laws(model, [Given(text, {"segments": segments})], is_causal=True)
    assert [one.law for one in found] == ["packed sequences stay apart"] * (backbone is Mixes)


def test_the_model_and_random_numbers_stay_as_they_are():
    torch.manual_seed(3)
    backbone = lawless.NormalisesBatches(24, 2)
    before = {name: x.clone() for name, x in backbone.state_dict().items()}
    model = Model(SPEC, backbone, NextToken())
    drawn = torch.get_rng_state()
    assert faults(model, NextToken(), TEXTS)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert backbone.training
    for name, x in backbone.state_dict().items():
        assert torch.equal(x, before[name]), name


@pytest.mark.slow
def test_a_large_model_is_examined_without_a_copy_of_its_weights(monkeypatch):
    monkeypatch.setattr("seqkit.runs.examined.laws.LARGE", 10)
    for build in (lawless.ReadsThePast, lawless.AddsTheNext, lawless.NormalisesBatches):
        backbone = build(24, 2)
        before = {name: x.clone() for name, x in backbone.state_dict().items()}
        assert bool(faults_of(backbone)) == (build is not lawless.ReadsThePast)
        assert all(torch.equal(x, before[name]) for name, x in backbone.state_dict().items())


def test_an_examination_takes_less_than_a_second():
    backbone = Transformer(128, 4, num_heads=4, causal=True)
    examples = Texts(200, 150, 100)
    started = time.process_time()
    faults_of(backbone, examples=examples)
    assert time.process_time() - started < 1.5


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def words(text_file, out, backbone, *more):
    return ["fit", "text/char-lm", "--preset", "debug", "--plugin", str(PLUGIN), "--data", text_file, "--data.window",
            "80", "--model.backbone", backbone, "--trainer.max_steps", "60", "--data.limit", "1000",
            "--trainer.enable_progress_bar", "false", "--out", str(out), *more]  # fmt: skip


def test_a_run_is_refused_in_one_line_and_leaves_no_folder(text_file, tmp_path, capsys):
    assert main(words(text_file, tmp_path / "run", "AddsTheNextLate")) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "seqkit fit: AddsTheNextLate breaks the law that no token attends to the"
    )
    assert "--allow-broken-laws" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_python_and_tune_refuse_as_well(text_file, tmp_path, capsys):
    import_plugins([PLUGIN])
    keys = {"data": text_file, "data.window": 80, "model.backbone": "AddsTheNext"}
    with pytest.raises(UsageError, match="AddsTheNext breaks the law"):
        seqkit.fit("text/char-lm", keys, preset="debug", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    given = [f"--{key}={value}" for key, value in keys.items()]
    assert main(["tune", "text/char-lm", "--preset", "debug", *given]) == 2
    assert "AddsTheNext breaks the law" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_allowed_says_so_wherever_it_is_compared(
    text_file, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "run"
    assert main(words(text_file, folder, "AddsTheNext", "--allow-broken-laws")) == 0
    said = capsys.readouterr().out
    summary = read_summary(folder)
    (line,) = summary.broken_laws
    assert "AddsTheNext breaks the law that no token attends to the future" in line
    assert line in (folder / "log.txt").read_text()
    for text in (said, (folder / "report.html").read_text()):
        assert line in " ".join(text.split())
        assert "the run is better" not in text
        assert "the run breaks a law, and is not compared" in " ".join(text.split())
    assert main(["runs", str(tmp_path)]) == 0
    assert "finished, breaks a law" in capsys.readouterr().out


def test_an_unfinished_run_goes_on_as_it_was_allowed(text_file, tmp_path):
    from seqkit.runs.run import MAY_CHANGE

    assert "trainer.allow_broken_laws" in MAY_CHANGE


@pytest.mark.parametrize("command", ["doctor", "inspect", "compare"])
def test_the_flag_is_nowhere_ignored(command, tmp_path, capsys):
    given = [str(tmp_path), str(tmp_path)] if command == "compare" else ["text/char-lm"]
    if command == "compare":
        (tmp_path / "summary.json").write_text("{}")
    assert main([command, *given, "--allow-broken-laws"]) == 2
    assert capsys.readouterr().err


# ── impossible scores ────────────────────────────────────────────────────────────────────────────────────────────────


def record(loss, **more):
    summary = {
        "recipe": "text/char-lm", "backbone": "GRU", "objective": "NextToken", "metrics": {"loss": loss},
        "baseline": {"loss": 3.0}, "num_parameters": 1, "wall_seconds": 1.0, "steps": 1000,
        "strong_baseline": {"name": "5-grams", "metrics": {"loss": 1.6}, "num_train": 100, "seconds": 1.0},
    }  # fmt: skip
    return summary | more


@pytest.mark.parametrize(
    ("loss", "is_doubted"), [(0.036, True), (0.15, True), (0.17, False), (1.5, False)]
)
def test_a_language_model_below_a_tenth_of_a_strong_baseline_is_doubted(loss, is_doubted):
    main_one = headline(record(loss))
    assert ("hardly possible" in main_one.verdict) == is_doubted
    sentences = [one for one in cautions(record(loss)) if "a tenth of the 1.6000 nats" in one]
    assert bool(sentences) == is_doubted
