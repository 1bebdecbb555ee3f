"""CTC: all alignments by brute force, both decoders, what does not fit."""

import itertools
import math

import pytest
import torch

from seqkit.backbones import GRU, EncoderDecoder, RNNDecoder, Transformer
from seqkit.data.dataset import TokenizedDataset, collate_targets
from seqkit.data.sample import Sample
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.objectives import CTC
from seqkit.tokenizers import Characters, Series, Words

LABELS = ["no no yes", ["yes", "no"], "yes no"]


def fitted(**settings):
    objective = CTC(Words(), **settings)
    objective.fit(LABELS, None)  # ids: 1 no, 2 yes; 3 is the blank
    return objective


def numbers(*lengths):
    generator = torch.Generator().manual_seed(0)
    return TokenBatch.collate(
        [Series(2).encode(torch.randn(n, 2, generator=generator)) for n in lengths]
    )


def merged(path, blank=3):
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol != blank)


def probabilities_of_texts(scores):
    """The sum over all paths, by the definition of Graves et al. 2006, equation 3."""
    found = {}
    for path in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        share = math.exp(sum(float(row[symbol]) for row, symbol in zip(scores, path)))
        found[merged(path)] = found.get(merged(path), 0.0) + share
    return found


def test_the_loss_is_that_of_all_alignments_without_those_of_padding():
    objective, lengths = fitted(), (5, 3, 4)
    label = collate_targets([objective.encode_target(label) for label in LABELS])
    target = objective.prepare(numbers(*lengths), label).target
    assert target.tolist() == [[5, 1, 1, 2], [3, 2, IGNORE, IGNORE], [4, 2, 1, IGNORE]]
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    each = [
        -math.log(probabilities_of_texts(row[:n].log_softmax(-1))[text])
        for row, n, text in zip(logits, lengths, [(1, 1, 2), (2,), (2, 1)])
    ]
    found = objective.loss(logits, target)
    assert float(found.loss) == pytest.approx(sum(each), rel=1e-5)
    assert int(found.count) == 6


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_the_likeliest_text_and_the_best_path_merges_the_likeliest_symbols(seed):
    scores = (2 * torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)
    texts = probabilities_of_texts(scores)
    assert tuple(fitted(beam_width=500)._beam(scores).tolist()) == max(texts, key=texts.get)
    assert tuple(fitted()._best_path(scores).tolist()) == merged(scores.argmax(-1).tolist())


def test_a_beam_adds_up_alignments_where_the_best_path_does_not():
    scores = torch.tensor([[0.0, 0.4, 0.0, 0.6]] * 2).log()  # blanks 0.36, `no` 0.64
    assert fitted()._best_path(scores).tolist() == []
    assert fitted(beam_width=2)._beam(scores).tolist() == [1]


@pytest.mark.parametrize("beam_width", [1, 3])
@pytest.mark.parametrize(
    "backbone", [GRU(12, 1), GRU(12, 1, causal=True), Transformer(12, 1, num_heads=3)]
)
def test_predictions_are_texts_and_padding_changes_none(backbone, beam_width):
    objective = fitted(beam_width=beam_width)
    model = Model(Series(2).spec, backbone, objective).eval()
    together = objective.decode(objective.predict(model, numbers(31, 7, 19)))
    batch = numbers(31, 7, 19)
    alone = [TokenBatch.collate([batch.example(i)]) for i in range(3)]
    assert together == [objective.decode(objective.predict(model, one))[0] for one in alone]
    assert {*" ".join(together).split()} <= {"no", "yes", "\ufffd"}


def test_a_text_that_does_not_fit_is_refused_with_its_name():
    objective = fitted()
    raws = [torch.randn(n, 2) for n in (3, 4)]
    for n, fits in ((0, False), (1, True)):  # `no no yes` needs a blank between its first two
        samples = [Sample(raws[n], "no no yes", name="b.wav")]
        if fits:
            TokenizedDataset(samples, Series(2), "training", objective=objective)
        else:
            with pytest.raises(
                DataError,
                match=r"b\.wav: its text has 3 symbols, which need 4 tokens, and it has 3",
            ):
                TokenizedDataset(samples, Series(2), "training", objective=objective)


def test_what_an_augmentation_made_too_short_counts_nothing_in_training_alone():
    objective = fitted()
    label = collate_targets([objective.encode_target(label) for label in LABELS])
    logits = torch.randn(3, 5, 4, requires_grad=True)
    target = objective.prepare(numbers(3, 3, 5), label).target
    found, whole = (
        objective.loss(logits, target, training=True),
        objective.loss(logits[1:], target[1:]),
    )
    assert float(found.loss.detach()) == pytest.approx(float(whole.loss.detach()))
    assert int(found.count) == int(whole.count) == 3
    found.loss.backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[0].any()
    assert float(objective.loss(logits, target).loss.detach()) == math.inf


@pytest.mark.parametrize("label", ["", "no maybe", 7, None])
def test_a_label_that_cannot_be_written_is_refused(label):
    objective = CTC(Characters("noyes "))
    objective.fit(["no", "yes"], None)
    with pytest.raises(
        DataError, match=r"the text is empty|'m'.* is not in the alphabet|a label is"
    ):
        objective.encode_target(label)


def test_what_cannot_be_read_in_order_is_refused_when_it_is_built():
    with pytest.raises(ValueError, match="have none; use Classify"):
        Model(
            TokenSpec(num_features=2, is_set=True, num_axes=0),
            Transformer(12, 1, num_heads=3),
            fitted(),
        )
    with pytest.raises(
        ValueError, match="generates one sequence from another, and CTC has only one"
    ):
        Model(Series(2).spec, EncoderDecoder(GRU(12, 1), RNNDecoder(12)), fitted())
    with pytest.raises(ValueError, match="beam_width=0"):
        fitted(beam_width=0)
    with pytest.raises(ValueError, match="Series does not give one id"):
        CTC(Series(2)).blank  # noqa: B018


def test_the_state_is_the_vocabulary():
    objective = CTC(Words())
    objective.load_state(fitted().state())
    assert objective.blank == 3
    assert objective.encode_target("yes no").tolist() == [[2, 1]]


def test_word_errors_are_of_words_where_symbols_are_characters():
    objective = CTC(Characters("abc "), metrics=["WordErrorRate"])
    metrics = objective.generation_metrics()
    ids = [objective.encode_target(text)[0] for text in ("ab ca", "ab cb c")]
    pad = torch.nn.utils.rnn.pad_sequence
    for metric in metrics.values():
        metric.update(pad(ids[:1], batch_first=True), pad(ids[1:], batch_first=True)[None])
    assert {name: round(float(metric.compute()), 4) for name, metric in metrics.items()} == {
        "token_error": 0.4286, "word_error": 0.6667, "sequence_error": 1.0,
    }  # fmt: skip


def test_sound_joined_with_text_and_an_image_is_read_too():
    from seqkit.raw import Waveform
    from seqkit.tokenizers import Join, LogMel, MultiScale, Patches, SpectrogramPatches

    mels = [LogMel(8000, num_mels=7, window_ms=w, hop_ms=w / 2) for w in (25, 60)]
    sounds = {
        "scales": MultiScale(dict(zip("ab", mels))),
        "patches": SpectrogramPatches(mels[0], patch=(5, 7), hop=(3, 7)),
    }
    tokenizer = Join(
        {"text": Characters("abc"), "image": Patches(2), **sounds},
        reads=dict.fromkeys(sounds, "sound"),
    )
    wave = Waveform(torch.randn(900, generator=torch.Generator().manual_seed(0)) * 0.1, 8000)
    raws = [
        {"text": "ab", "image": torch.rand(1, 4, 6), "sound": wave},
        {"sound": wave},
        {"text": "c", "sound": wave},
    ]
    batch = TokenBatch.collate([tokenizer.encode(raw) for raw in raws])
    objective = fitted()
    model = Model(tokenizer.spec, Transformer(12, 1, num_heads=3), objective).eval()
    loss = objective.step(
        model, (batch, collate_targets([objective.encode_target(label) for label in LABELS]))
    ).loss
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.embedder.parameters())
    assert len(objective.decode(objective.predict(model, batch))) == 3
