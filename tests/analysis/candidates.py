"""Small models to be measured."""

import torch

from seqkit.analysis.speed import Candidate
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.training.optim import AdamW

VOCAB, DIM = 11, 6


def batch_of(*lengths, seed=3):
    g = torch.Generator().manual_seed(seed)
    return TokenBatch.collate(
        [Tokens(torch.randint(VOCAB, (n,), generator=g), torch.arange(float(n))[:, None]) for n in lengths]
    )


def candidate(backbone, objective, batches, **more):
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, objective)
    return Candidate(model, objective, AdamW(1e-3), batches, **more)


def language_model(backbone, **more):
    return candidate(backbone, NextToken(tied=False), [(batch_of(7, 5), None), (batch_of(3), None)], **more)
