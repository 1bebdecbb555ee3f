"""Beam search equals Hugging Face's and brute force; a cache or a batch changes nothing."""

import itertools

import pytest
import torch
from generating import ONE, RAGGED, TWO, VOCAB, columns, generating_model, last_logits, sources
from torch.testing import assert_close

from seqkit.generation import BeamSearch, Sampling, beam_search, generate
from seqkit.interfaces import Adjacency, Backbone, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.kv_cache import LayerCache
from seqkit.objectives import NextToken

STOP = [2, 9]
SEARCHES = [
    (BeamSearch(1), ()),
    (BeamSearch(3), STOP),
    (BeamSearch(5, length_penalty=-0.7), STOP[:1]),
]
NAMES = [*ONE, *TWO]


def undecided_model(name="Transformer"):
    """Many sequences are nearly equally likely, so that a search has something to choose from."""
    m = generating_model(name)
    m.head.linear.weight.data *= 0.3
    m.head.linear.bias.data[STOP] = 0.7
    return m


def assert_same(ours, theirs):
    assert [len(found) for found in ours] == [len(found) for found in theirs]
    for a, b in zip(itertools.chain(*ours), itertools.chain(*theirs)):
        assert a.ids.equal(b.ids)
        assert (a.score, a.stopped) == (pytest.approx(b.score, abs=1e-4), b.stopped)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("context_length", [None, 6])
def test_a_cache_changes_no_hypothesis(name, context_length):
    m = undecided_model(name)
    for beams, stop in SEARCHES:
        settings = {
            "beams": beams,
            "stop": stop,
            "context_length": context_length,
            "source": sources(name),
        }
        found = beam_search(m, RAGGED, 11, use_cache=True, **settings)
        assert_same(found, beam_search(m, RAGGED, 11, use_cache=False, **settings))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_changes_no_hypothesis(name):
    m = undecided_model(name)
    for beams, stop in SEARCHES:
        together = beam_search(m, RAGGED, 11, beams=beams, stop=stop, source=sources(name))
        for i, found in enumerate(together):
            alone = beam_search(
                m, [RAGGED[i]], 11, beams=beams, stop=stop, source=sources(name, [i])
            )
            assert_same([found], alone)


def test_a_cache_that_is_not_reordered_gives_other_hypotheses(monkeypatch):
    m = undecided_model()
    right = beam_search(m, RAGGED, 11, beams=BeamSearch(3))
    reorder = LayerCache.reorder
    wrong = lambda self, rows: reorder(self, rows - rows % 3 if len(rows) == 9 else rows)  # noqa: E731
    monkeypatch.setattr(LayerCache, "reorder", wrong)
    with pytest.raises(AssertionError):
        assert_same(beam_search(m, RAGGED, 11, beams=BeamSearch(3)), right)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("context_length", [None, 4])
def test_one_beam_is_greedy(name, context_length):
    m, settings = undecided_model(name), {"source": sources(name), "context_length": context_length}
    greedy = columns(m, RAGGED, 9, sampling=Sampling(temperature=0), **settings)
    best = generate(m, RAGGED, 9, strategy=BeamSearch(1), **settings)
    assert torch.stack(best).equal(greedy)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.5, -1.0])
def test_beams_as_wide_as_the_vocabulary_find_the_best_of_all_sequences_of_two_tokens(penalty):
    m, stop, steps = undecided_model(), 4, 2  # so small a tree keeps every prefix
    beams = BeamSearch(VOCAB, length_penalty=penalty)
    found = beam_search(m, RAGGED, steps, beams=beams, stop=[stop])
    for prompt, mine in zip(RAGGED, found):
        sequences = []
        first = last_logits(m, prompt).log_softmax(-1)
        for a in range(VOCAB):
            if a == stop:
                sequences.append((float(first[a]), []))
                continue
            second = last_logits(m, torch.cat([prompt, torch.tensor([a])])).log_softmax(-1)
            for b in range(VOCAB):
                both = float(first[a] + second[b]) / 2**penalty
                sequences.append((both, [a] if b == stop else [a, b]))
        sequences.sort(key=lambda sequence: -sequence[0])
        assert len(mine) == VOCAB
        assert [h.ids.tolist() for h in mine] == [ids for _, ids in sequences[:VOCAB]]
        assert_close(
            [h.score for h in mine], [score for score, _ in sequences[:VOCAB]], atol=1e-4, rtol=0
        )
        assert [h.stopped for h in mine] == [len(h.ids) < 2 for h in mine]


class LastToken(Backbone):
    """Hidden states are the embeddings, so that the next token depends on the last one alone."""

    causal = True

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, embedded, cache=None):
        return embedded.hidden


def bigram_model(table):
    """A model whose logits after an id are that row of the table [v v]."""
    m = Model(
        TokenSpec(vocab_size=len(table), num_axes=0), LastToken(len(table)), NextToken(bias=False)
    )
    m.embedder.content.weight.data = torch.eye(len(table))
    m.head.linear.weight.data = table.T.contiguous()
    return m.eval()


def tables(num_stop, num_words, count):
    """Random tables [v v] over ids that stop, from 0 on, and words, which are rarer at first and often common later."""
    g = torch.Generator().manual_seed(0)
    for _ in range(count):
        table = 2 * torch.randn(num_stop + num_words, num_stop + num_words, generator=g)
        table[:num_stop, num_stop:] -= 4.0 * torch.rand((), generator=g)
        table[num_stop:, num_stop:] += 6.0 * torch.rand((), generator=g) - 2.0
        yield table


def each_id(table):
    """A prompt of each id."""
    return [torch.tensor([i]) for i in range(len(table))]


def every_sequence(table, prompt, stop, steps, penalty):
    """Ids of all sequences that end at a stop id or after so many steps, with their best score."""
    log_probabilities = table.double().log_softmax(-1).tolist()
    ongoing, scores = [(0.0, (prompt,))], {}
    for length in range(1, steps + 1):
        longer = [
            (total + p, (*ids, new))
            for total, ids in ongoing
            for new, p in enumerate(log_probabilities[ids[-1]])
        ]
        for total, ids in longer:
            if ids[-1] in stop or length == steps:
                own = ids[1:-1] if ids[-1] in stop else ids[1:]
                scores[own] = max(total / length**penalty, scores.get(own, -float("inf")))
        ongoing = [(total, ids) for total, ids in longer if ids[-1] not in stop]
    return scores


@pytest.mark.parametrize("penalty", [-0.5, 0.0, 0.7, 1.7])
@pytest.mark.parametrize(
    ("num_stop", "num_words", "num_beams", "steps"), [(4, 1, 2, 7), (6, 2, 5, 3), (11, 2, 5, 3)]
)
def test_the_best_hypothesis_is_the_best_of_all_sequences(
    penalty, num_stop, num_words, num_beams, steps
):
    """There are fewer ongoing prefixes than beams until the last step, so none is lost but by ending too early."""
    assert num_words ** (steps - 1) < num_beams
    stop, beams = list(range(num_stop)), BeamSearch(num_beams, length_penalty=penalty)
    for table in tables(num_stop, num_words, 29):
        hypotheses = beam_search(
            bigram_model(table), each_id(table)[:num_stop], steps, beams=beams, stop=stop
        )
        for prompt, (best, *_) in enumerate(hypotheses):
            scores = every_sequence(table, prompt, stop, steps, penalty)
            assert best.score == pytest.approx(max(scores.values()), abs=1e-4)
            assert best.score == pytest.approx(scores[tuple(best.ids.tolist())], abs=1e-4)


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.7, 1.7])
@pytest.mark.parametrize(("num_stop", "num_beams"), [(1, 2), (1, 5), (4, 3)])
def test_a_search_that_ends_early_finds_what_one_without_end_finds(
    penalty, num_stop, num_beams, monkeypatch
):
    beams, stop, searched = BeamSearch(num_beams, length_penalty=penalty), list(range(num_stop)), []
    for bound in (BeamSearch.best_possible, lambda *_: float("inf")):
        monkeypatch.setattr(BeamSearch, "best_possible", bound)
        searched.append([
            beam_search(bigram_model(table), each_id(table), 9, beams=beams, stop=stop)
            for table in tables(num_stop, 4, 9)
        ])  # fmt: skip
    for early, late in zip(*searched):
        assert_same(early, late)


def hugging_face(model, source=None):
    """Its `generate` over our model's logits."""
    from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutput

    class Witness(PreTrainedModel, GenerationMixin):
        config_class, main_input_name = PretrainedConfig, "input_ids"

        def __init__(self):
            super().__init__(PretrainedConfig(vocab_size=model.spec.vocab_size))
            self.model = model
            self.post_init()

        def _init_weights(self, module):
            pass  # they are the model's

        def prepare_inputs_for_generation(self, input_ids, **kwargs):
            return {"input_ids": input_ids}

        def forward(self, input_ids, attention_mask=None, **kwargs):
            b, n = input_ids.shape
            repeated = None if source is None else source.select(torch.zeros(b, dtype=torch.int64))
            positions = torch.arange(float(n))[None, :, None].expand(b, n, 1)
            batch = TokenBatch(
                input_ids, positions, torch.ones(b, n, dtype=torch.bool), source=repeated
            )
            return CausalLMOutput(logits=self.model(batch))

    return Witness()


@pytest.mark.parametrize(
    ("name", "penalty", "ends"),
    [
        *(("Transformer", penalty, "never") for penalty in (0.0, 1.0, 1.9, -0.7)),
        *(("Transformer", penalty, ends) for penalty in (1.9, -0.7) for ends in (True, False)),
        ("GRU", 1.0, "never"),
        ("Transformer, Transformer", 1.0, "never"),
    ],
)
@pytest.mark.parametrize("stop", [[], STOP])
@pytest.mark.filterwarnings("ignore")  # Hugging Face's about itself
def test_hypotheses_and_scores_equal_hugging_faces(name, penalty, ends, stop):
    m, steps, k = undecided_model(name), 7, 3
    ours = beam_search(
        m,
        RAGGED,
        steps,
        beams=BeamSearch(k, length_penalty=penalty, early_stopping=ends),
        stop=stop,
        source=sources(name),
    )
    ended = 0
    for i, (prompt, found) in enumerate(zip(RAGGED, ours)):
        theirs = hugging_face(m, sources(name, [i])).generate(
            prompt[None],
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=steps,
            num_beams=k,
            num_return_sequences=k,
            length_penalty=penalty,
            early_stopping=ends,
            eos_token_id=stop or None,
            pad_token_id=0,
            do_sample=False,
            use_cache=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        for mine, ids, score in zip(found, theirs.sequences, theirs.sequences_scores, strict=True):
            theirs_new = ids[len(prompt) :].tolist()
            end = next((j for j, new in enumerate(theirs_new) if new in stop), len(theirs_new))
            assert mine.ids.tolist() == theirs_new[:end]
            assert mine.score == pytest.approx(float(score), abs=1e-4)
            ended += mine.stopped
    assert (ended > 0) == bool(stop)


def test_a_search_that_ends_earlier_finds_other_hypotheses():
    found = []
    for ends in (True, False, "never"):
        beams = BeamSearch(2, length_penalty=3.0, early_stopping=ends)
        rows = [
            beam_search(bigram_model(table), each_id(table), 9, beams=beams, stop=[0])
            for table in tables(1, 4, 9)
        ]
        found.append([max(row, key=lambda one: one.score).score for each in rows for row in each])
    at_once, heuristic, never = map(sum, found)
    assert at_once < heuristic < never
    assert all(early <= late + 1e-6 for early, late in zip(found[0], found[2]))


@pytest.mark.filterwarnings("ignore")
def test_greedy_decoding_equals_hugging_faces():
    m = undecided_model()
    for prompt, row in zip(
        RAGGED, columns(m, RAGGED, 11, sampling=Sampling(temperature=0, repetition_penalty=1.3))
    ):
        theirs = hugging_face(m).generate(
            prompt[None],
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=11,
            do_sample=False,
            repetition_penalty=1.3,
            pad_token_id=0,
            use_cache=False,
        )
        assert row.equal(theirs[0, len(prompt) :])


def test_examples_of_a_batch_are_selected_with_their_adjacency():
    edge_index, edge_type = (
        torch.tensor([[0, 1, 6, 7, 5], [1, 0, 5, 5, 6]]),
        torch.tensor([1, 2, 3, 4, 5]),
    )
    batch = TokenBatch(
        torch.arange(10).reshape(2, 5),
        torch.zeros(2, 5, 0),
        torch.ones(2, 5).bool(),
        Adjacency(edge_index, edge_type),
    )
    selected = batch.select(torch.tensor([1, 0, 1]))
    assert selected.content.tolist() == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    pairs = set(zip(*selected.adjacency.edge_index.tolist(), selected.adjacency.edge_type.tolist()))
    first = {(1, 0, 3), (2, 0, 4), (0, 1, 5)}
    assert pairs == first | {(5, 6, 1), (6, 5, 2)} | {(10 + a, 10 + b, t) for a, b, t in first}


@pytest.mark.parametrize("rows", [[1, 0], [1], [0, 1, 0]])
def test_examples_of_a_batch_are_selected_with_the_numbers_beside_their_fields(rows):
    ids, numbers = torch.arange(12).reshape(2, 3, 2), torch.randn(2, 3, 5)
    batch = TokenBatch(ids, torch.zeros(2, 3, 0), torch.ones(2, 3).bool(), features=numbers)
    selected = batch.select(torch.tensor(rows))
    assert selected.content.equal(ids[rows])
    assert selected.features.equal(numbers[rows])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_beams": 2.5}, "num_beams=2.5"),
        ({"length_penalty": float("nan")}, "length_penalty=nan"),
        ({"early_stopping": "soon"}, "early_stopping='soon'"),
    ],
)
def test_an_impossible_setting_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**settings)


def test_more_beams_than_ids_are_refused():
    with pytest.raises(ValueError, match="num_beams=14"):
        generate(undecided_model(), RAGGED, 3, strategy=BeamSearch(14))
