"""Beam search: what Hugging Face finds, what brute force finds, with a cache and without it, alone and in a batch."""

import itertools

import pytest
import torch
from torch.testing import assert_close
from writing import ONE, RAGGED, TWO, VOCAB, columns, last_scores, sources, writing_model

from seqkit.contract import Links, TokenBatch
from seqkit.generate import BeamSearch, Sampling, beam_search, complete
from seqkit.generate.writer import examples
from seqkit.layers.memory import LayerMemory

STOP = [2, 9]
SEARCHES = [(BeamSearch(1), ()), (BeamSearch(3), STOP), (BeamSearch(5, length_penalty=-0.7), STOP[:1])]
NAMES = [*ONE, *TWO]


def unsure_model(name="Transformer"):
    """One to whom many texts are nearly as likely, so that a search has something to choose from."""
    m = writing_model(name)
    m.head.linear.weight.data *= 0.3
    m.head.linear.bias.data[STOP] = 0.7
    return m


def same(ours, theirs):
    assert [len(found) for found in ours] == [len(found) for found in theirs]
    for a, b in zip(itertools.chain(*ours), itertools.chain(*theirs)):
        assert a.ids.equal(b.ids)
        assert (a.score, a.stopped) == (pytest.approx(b.score, abs=1e-4), b.stopped)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("context", [None, 6])
def test_with_a_cache_and_without_it_the_same_is_found(name, context):
    m = unsure_model(name)
    for beams, stop in SEARCHES:
        settings = {"beams": beams, "stop": stop, "context": context, "memory": sources(name)}
        found = beam_search(m, RAGGED, 11, use_cache=True, **settings)
        same(found, beam_search(m, RAGGED, 11, use_cache=False, **settings))


@pytest.mark.parametrize("name", NAMES)
def test_alone_and_in_a_batch_the_same_is_found(name):
    m = unsure_model(name)
    for beams, stop in SEARCHES:
        together = beam_search(m, RAGGED, 11, beams=beams, stop=stop, memory=sources(name))
        for i, found in enumerate(together):
            alone = beam_search(m, [RAGGED[i]], 11, beams=beams, stop=stop, memory=sources(name, [i]))
            same([found], alone)


def test_a_cache_whose_rows_stay_where_they_were_is_noticed(monkeypatch):
    m = unsure_model()
    right = beam_search(m, RAGGED, 11, beams=BeamSearch(3))
    select = LayerMemory.select
    wrong = lambda self, rows: select(self, rows - rows % 3 if len(rows) == 9 else rows)  # noqa: E731
    monkeypatch.setattr(LayerMemory, "select", wrong)
    with pytest.raises(AssertionError):
        same(beam_search(m, RAGGED, 11, beams=BeamSearch(3)), right)


@pytest.mark.parametrize("name", NAMES)
def test_one_beam_is_greedy(name):
    m = unsure_model(name)
    greedy = columns(m, RAGGED, 9, sampling=Sampling(temperature=0), memory=sources(name))
    best = complete(m, RAGGED, 9, strategy=BeamSearch(1), memory=sources(name))
    assert torch.stack(best).equal(greedy)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.5, -1.0])
def test_beams_as_wide_as_the_vocabulary_find_the_best_of_all_texts_of_two_tokens(penalty):
    m, stop, steps = unsure_model(), 4, 2  # so narrow a tree keeps every beginning
    beams = BeamSearch(VOCAB, length_penalty=penalty)
    found = beam_search(m, RAGGED, steps, beams=beams, stop=[stop])
    for prompt, mine in zip(RAGGED, found):
        texts = []
        first = last_scores(m, prompt).log_softmax(-1)
        for a in range(VOCAB):
            if a == stop:
                texts.append((float(first[a]), []))
                continue
            second = last_scores(m, torch.cat([prompt, torch.tensor([a])])).log_softmax(-1)
            for b in range(VOCAB):
                both = float(first[a] + second[b]) / 2**penalty
                texts.append((both, [a] if b == stop else [a, b]))
        texts.sort(key=lambda text: -text[0])
        assert len(mine) == VOCAB
        assert [h.ids.tolist() for h in mine] == [ids for _, ids in texts[:VOCAB]]
        assert_close([h.score for h in mine], [score for score, _ in texts[:VOCAB]], atol=1e-4, rtol=0)
        assert [h.stopped for h in mine] == [len(h.ids) < 2 for h in mine]


def hugging_face(model, memory=None):
    """Its `generate` over our model's scores."""
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
            read = None if memory is None else examples(memory, torch.zeros(b, dtype=torch.int64))
            positions = torch.arange(float(n))[None, :, None].expand(b, n, 1)
            batch = TokenBatch(input_ids, positions, torch.ones(b, n, dtype=torch.bool), memory=read)
            return CausalLMOutput(logits=self.model(batch))

    return Witness()


@pytest.mark.parametrize("name", ["Transformer", "GRU", "Transformer, Transformer"])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.9, -0.7])
@pytest.mark.parametrize("stop", [[], STOP])
@pytest.mark.filterwarnings("ignore")  # Hugging Face's about itself
def test_it_finds_what_hugging_face_finds_with_the_same_scores(name, penalty, stop):
    m, steps, k = unsure_model(name), 7, 3
    ours = beam_search(m, RAGGED, steps, beams=BeamSearch(k, length_penalty=penalty), stop=stop, memory=sources(name))
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
            written = ids[len(prompt) :].tolist()
            end = next((j for j, new in enumerate(written) if new in stop), len(written))
            assert mine.ids.tolist() == written[:end]
            assert mine.score == pytest.approx(float(score), abs=1e-4)
            ended += mine.stopped
    assert (ended > 0) == bool(stop)


@pytest.mark.filterwarnings("ignore")
def test_greedy_is_what_hugging_face_writes():
    m = unsure_model()
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


def test_examples_of_a_batch_are_taken_with_their_links():
    edges, kinds = torch.tensor([[0, 1, 6, 7, 5], [1, 0, 5, 5, 6]]), torch.tensor([1, 2, 3, 4, 5])
    batch = TokenBatch(
        torch.arange(10).reshape(2, 5), torch.zeros(2, 5, 0), torch.ones(2, 5).bool(), Links(edges, kinds)
    )
    taken = examples(batch, torch.tensor([1, 0, 1]))
    assert taken.content.tolist() == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    pairs = set(zip(*taken.links.edges.tolist(), taken.links.kinds.tolist()))
    first = {(1, 0, 3), (2, 0, 4), (0, 1, 5)}
    assert pairs == first | {(5, 6, 1), (6, 5, 2)} | {(10 + a, 10 + b, kind) for a, b, kind in first}


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
        complete(unsure_model(), RAGGED, 3, strategy=BeamSearch(14))
