"""Beam search equals Hugging Face's and brute force; a cache or a batch changes nothing."""

import itertools

import pytest
import torch
from generating import ONE, RAGGED, TWO, VOCAB, columns, generating_model, last_logits, sources
from torch.testing import assert_close

from seqkit.generation import BeamSearch, Sampling, beam_search, generate
from seqkit.generation.decode import select_examples
from seqkit.interfaces import Adjacency, TokenBatch
from seqkit.nn.attention.kv_cache import LayerCache

STOP = [2, 9]
SEARCHES = [(BeamSearch(1), ()), (BeamSearch(3), STOP), (BeamSearch(5, length_penalty=-0.7), STOP[:1])]
NAMES = [*ONE, *TWO]


def undecided_model(name="Transformer"):
    """Many sequences are nearly equally likely, so that a search has something to choose from."""
    m = generating_model(name)
    m.head.linear.weight.data *= 0.3
    m.head.linear.bias.data[STOP] = 0.7
    return m


def same(ours, theirs):
    assert [len(found) for found in ours] == [len(found) for found in theirs]
    for a, b in zip(itertools.chain(*ours), itertools.chain(*theirs)):
        assert a.ids.equal(b.ids)
        assert (a.score, a.stopped) == (pytest.approx(b.score, abs=1e-4), b.stopped)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("context_length", [None, 6])
def test_a_cache_changes_no_hypothesis(name, context_length):
    m = undecided_model(name)
    for beams, stop in SEARCHES:
        settings = {"beams": beams, "stop": stop, "context_length": context_length, "source": sources(name)}
        found = beam_search(m, RAGGED, 11, use_cache=True, **settings)
        same(found, beam_search(m, RAGGED, 11, use_cache=False, **settings))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_changes_no_hypothesis(name):
    m = undecided_model(name)
    for beams, stop in SEARCHES:
        together = beam_search(m, RAGGED, 11, beams=beams, stop=stop, source=sources(name))
        for i, found in enumerate(together):
            alone = beam_search(m, [RAGGED[i]], 11, beams=beams, stop=stop, source=sources(name, [i]))
            same([found], alone)


def test_a_cache_that_is_not_reordered_gives_other_hypotheses(monkeypatch):
    m = undecided_model()
    right = beam_search(m, RAGGED, 11, beams=BeamSearch(3))
    reorder = LayerCache.reorder
    wrong = lambda self, rows: reorder(self, rows - rows % 3 if len(rows) == 9 else rows)  # noqa: E731
    monkeypatch.setattr(LayerCache, "reorder", wrong)
    with pytest.raises(AssertionError):
        same(beam_search(m, RAGGED, 11, beams=BeamSearch(3)), right)


@pytest.mark.parametrize("name", NAMES)
def test_one_beam_is_greedy(name):
    m = undecided_model(name)
    greedy = columns(m, RAGGED, 9, sampling=Sampling(temperature=0), source=sources(name))
    best = generate(m, RAGGED, 9, strategy=BeamSearch(1), source=sources(name))
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
        assert_close([h.score for h in mine], [score for score, _ in sequences[:VOCAB]], atol=1e-4, rtol=0)
        assert [h.stopped for h in mine] == [len(h.ids) < 2 for h in mine]


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
            repeated = None if source is None else select_examples(source, torch.zeros(b, dtype=torch.int64))
            positions = torch.arange(float(n))[None, :, None].expand(b, n, 1)
            batch = TokenBatch(input_ids, positions, torch.ones(b, n, dtype=torch.bool), source=repeated)
            return CausalLMOutput(logits=self.model(batch))

    return Witness()


@pytest.mark.parametrize("name", ["Transformer", "GRU", "Transformer, Transformer"])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.9, -0.7])
@pytest.mark.parametrize("stop", [[], STOP])
@pytest.mark.filterwarnings("ignore")  # Hugging Face's about itself
def test_hypotheses_and_scores_equal_hugging_faces(name, penalty, stop):
    m, steps, k = undecided_model(name), 7, 3
    ours = beam_search(m, RAGGED, steps, beams=BeamSearch(k, length_penalty=penalty), stop=stop, source=sources(name))
    ended = 0
    for i, (prompt, found) in enumerate(zip(RAGGED, ours)):
        theirs = hugging_face(m, sources(name, [i])).generate(
            prompt[None],
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=steps,
            num_beams=k,
            num_return_sequences=k,
            length_penalty=penalty,
            early_stopping="never",
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


@pytest.mark.filterwarnings("ignore")
def test_greedy_decoding_equals_hugging_faces():
    m = undecided_model()
    for prompt, row in zip(RAGGED, columns(m, RAGGED, 11, sampling=Sampling(temperature=0, repetition_penalty=1.3))):
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
    edge_index, edge_type = torch.tensor([[0, 1, 6, 7, 5], [1, 0, 5, 5, 6]]), torch.tensor([1, 2, 3, 4, 5])
    batch = TokenBatch(
        torch.arange(10).reshape(2, 5), torch.zeros(2, 5, 0), torch.ones(2, 5).bool(), Adjacency(edge_index, edge_type)
    )
    selected = select_examples(batch, torch.tensor([1, 0, 1]))
    assert selected.content.tolist() == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    pairs = set(zip(*selected.adjacency.edge_index.tolist(), selected.adjacency.edge_type.tolist()))
    first = {(1, 0, 3), (2, 0, 4), (0, 1, 5)}
    assert pairs == first | {(5, 6, 1), (6, 5, 2)} | {(10 + a, 10 + b, t) for a, b, t in first}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_beams": 2.5}, "num_beams=2.5"),
        ({"length_penalty": float("nan")}, "length_penalty=nan"),
    ],
)
def test_an_impossible_setting_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**settings)


def test_more_beams_than_ids_are_refused():
    with pytest.raises(ValueError, match="num_beams=14 is wider than the vocabulary of 13; make it narrower"):
        generate(undecided_model(), RAGGED, 3, strategy=BeamSearch(14))
