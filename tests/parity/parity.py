"""Shared by the parity tests: random weights, padded batches, state dicts under our names, and one comparison.

b batch · n tokens · d width · i inputs · o outputs
"""

from copy import deepcopy

import torch
from einops import rearrange
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from seqkit.interfaces import TokenBatch, Tokens
from seqkit.nn.embedder import Embedder

SLACK = 1e-5
"""Largest difference of two outputs that count as equal, as a share of the largest value.

Sums are in float64 (conftest.py). Norms, softmax and rotary angles of theirs stay in float32, which costs up to 2e-6.
"""


def randomized(module, std=0.1):
    """The module in eval mode, noise added to every parameter: no bias is left at 0 and no norm at 1."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p) * std)
    return module.eval()


class EmbeddedBackbone(nn.Module):
    """Hidden states of a token batch: our Embedder, then our backbone."""

    def __init__(self, spec, backbone, position):
        super().__init__()
        self.embedder = Embedder(spec, backbone.dim, position=position)
        self.backbone = backbone
        self.eval()

    def forward(self, batch, cache=None):
        return self.backbone(self.embedder(batch), cache)


def texts(lengths, vocab_size, num_axes=1):
    """Random ids of those lengths, padded; the second axis, if any, is the sentence: 0, then 1 from the middle on."""
    examples = []
    for n in lengths:
        index = torch.arange(n)
        axes = [index, (index >= n // 2).long()][:num_axes]
        examples.append(Tokens(torch.randint(vocab_size, (n,)), torch.stack(axes, dim=1).float()))
    return TokenBatch.collate(examples)


def linear(theirs, name):
    """An `nn.Linear` as entries of our state dict under `name`."""
    return {f"{name}.{kind}": value for kind, value in theirs.state_dict().items()}


def linears(theirs, name):
    """Several `nn.Linear`s over the same input as one, their outputs side by side."""
    kinds = theirs[0].state_dict()
    return {f"{name}.{kind}": torch.cat([x.state_dict()[kind] for x in theirs]) for kind in kinds}


def attention(query, key, value, out, name):
    """The projections of an attention layer under `name`: as one, or with the queries' apart in cross-attention."""
    if name.endswith("cross_attention"):
        projections = linear(query, f"{name}.q_proj") | linears([key, value], f"{name}.kv_proj")
    else:
        projections = linears([query, key, value], f"{name}.qkv_proj")
    return projections | linear(out, f"{name}.out_proj")


def transposed(theirs, name):
    """Hugging Face's `Conv1D`, whose weight stands as [i o]."""
    return {f"{name}.weight": rearrange(theirs.weight, "i o -> o i"), f"{name}.bias": theirs.bias}


def assert_equal(ours, theirs, valid=None):
    """Equal to `SLACK` where valid, and with outputs that differ enough to be compared."""
    if valid is not None:
        ours, theirs = ours[valid], theirs[valid]
    largest = float(theirs.abs().max())
    assert ours.dtype == torch.float64
    assert theirs.std() > 0.05 * largest, (
        "the outputs are too much alike for the comparison to notice anything"
    )
    torch.testing.assert_close(ours, theirs.double(), rtol=0, atol=SLACK * largest)


def doubled(module):
    """A copy in float64, and in eval mode."""
    return deepcopy(module).double().eval()


def alone(model, batch, **inputs):
    """What their language model or encoder gives for each text by itself, padded with zeros.

    In float64 their mask of a row that attends to nothing, as those of padding beyond a window, makes it NaN.
    inputs: what it gets beside the ids, [b n].
    """
    found = []
    for i, valid in enumerate(batch.valid):
        given = {name: x[i : i + 1, valid] for name, x in inputs.items()}
        found.append(model(batch.content[i : i + 1, valid], **given)[0][0])
    return pad_sequence(found, batch_first=True)
