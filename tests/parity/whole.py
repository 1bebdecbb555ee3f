"""Whole models beside Hugging Face's: built from docs/families.md; generation, gradients, every value mapped.

b batch · n tokens · t new tokens · v vocabulary
"""

from copy import deepcopy
from dataclasses import replace
from string import ascii_letters

import torch
from families import settings
from parity import SLACK, alone, assert_equal, texts

from seqkit.generation import Sampling, generate
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.heads import TiedHead
from seqkit.objectives import NextToken
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.tokenizers import Characters

PADDED_OR_NOT = [[13, 13], [11, 19, 5]]
"""Lengths of two batches, the second padded."""
NEW_TOKENS = 14


def decoder(name, vocab_size, *, tied, position=None, overrides=None):
    """A language model of the family's lines; its head has no bias. position: None: as the lines say."""
    given = settings(name, overrides) | ({} if position is None else {"position": position})
    model = Model(TokenSpec(vocab_size=vocab_size), objective=NextToken(bias=False), **given)
    if tied:
        model.head = TiedHead(model.embedder.table)
    return model.eval()


def encoder_decoder(name, spec, vocab_size, *, head, position=None):
    """A model that generates ids below vocab_size from tokens of `spec`. head: `embedder -> nn.Module`."""
    # its vocabulary has bos and eos too
    objective = Seq2Seq(Characters(ascii_letters[: vocab_size - 2]), tied=False)
    given = settings(name) | ({} if position is None else {"position": position})
    model = Model(spec, objective=objective, **given)
    if spec.ids:
        model.source_embedder.content = model.embedder.content  # one table for both sequences
    model.head = head(model.embedder)
    return model.eval()


def scattered(norm):
    """A last norm with random signs and little bias: else a tied head repeats the last id, or one id for all."""
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.mul_(0.1)


def assert_every_value_is_mapped(ours, theirs, *, unused=(), added=()):
    """Their parameters and ours hold the same numbers, each as often; shared ones count once.

    unused: tensors of theirs that no token reads. added: tensors of ours that theirs has not.
    """

    def numbers(*tensors):
        return torch.cat([x.detach().flatten() for x in tensors]).sort().values

    assert torch.equal(numbers(*ours.parameters(), *unused), numbers(*theirs.parameters(), *added))


def assert_same_logits(ours, theirs, lengths):
    """Of a language model, on random texts of those lengths, where they are real."""
    batch = texts(lengths, ours.spec.vocab_size)
    with torch.no_grad():
        assert_equal(ours(batch), alone(theirs, batch), batch.valid)


def assert_same_logits_from_a_source(ours, theirs, source_lengths, lengths):
    """Of an encoder–decoder, both sequences texts."""
    vocab_size = ours.spec.vocab_size
    batch = replace(texts(lengths, vocab_size), source=texts(source_lengths, vocab_size))
    with torch.no_grad():
        right = theirs(
            input_ids=batch.source.content,
            attention_mask=batch.source.valid.long(),
            decoder_input_ids=batch.content,
            decoder_attention_mask=batch.valid.long(),
        ).logits
        assert_equal(ours(batch), right, batch.valid)


def assert_same_generation(ours, theirs, prompts, *, source=None, inputs=None):
    """Each greedy id of ours, with a cache and without, is the likeliest of theirs after all ids before it.

    source: batch for our encoder. inputs: what their encoder gets of each example.
    """
    cached, uncached = (
        generate(
            ours,
            prompts,
            NEW_TOKENS,
            strategy=Sampling(temperature=0),
            source=source,
            use_cache=use_cache,
        )
        for use_cache in (True, False)
    )
    for i, prompt in enumerate(prompts):
        ids = torch.cat([prompt, uncached[i]])[None, :-1]
        given = {"input_ids": ids} if inputs is None else {**inputs[i], "decoder_input_ids": ids}
        with torch.no_grad():
            likeliest = theirs(**given).logits[0, len(prompt) - 1 :].argmax(dim=-1)
        assert uncached[i].equal(likeliest)
        assert cached[i].equal(likeliest)
    assert len(torch.cat(cached).unique()) > 2, (
        "the ids repeat too much for the comparison to notice anything"
    )


def assert_same_gradients(ours, theirs, weights, lengths):
    """Of every parameter, relative to its largest entry, for a random projection of the logits.

    weights: maps their parameters to ours, and so their gradients.
    """
    batch = texts(lengths, ours.spec.vocab_size)
    right = alone(theirs, batch)[batch.valid]
    direction = torch.randn_like(right)
    (right * direction).sum().backward()
    (ours(batch)[batch.valid] * direction).sum().backward()
    gradients = deepcopy(theirs)
    with torch.no_grad():
        for p, q in zip(gradients.parameters(), theirs.parameters(), strict=True):
            p.copy_(q.grad)
    mapped = weights(gradients)
    for name, p in ours.named_parameters():
        error, scale = (p.grad - mapped[name]).abs().max(), mapped[name].abs().max()
        assert error <= SLACK * scale, f"{name}: {error:.1e} of {scale:.1e}"
