# %% [markdown]
# # Attention by hand
#
# After this notebook you can compute attention with pencil and paper, say what each mask does, and find the same
# numbers in a layer of seqkit.
#
# The shapes use these letters: `b` batch, `n` queries, `m` keys, `h` heads, `c` channels of one head.

# %%
import matplotlib.pyplot as plt
import torch
from einops import rearrange

torch.manual_seed(0)


def draw(matrices, titles, words):
    """One heatmap for each matrix of attention weights: rows are queries, columns are keys."""
    figure, axes = plt.subplots(1, len(matrices), figsize=(3.4 * len(matrices), 3.4), squeeze=False)
    for axis, matrix, title in zip(axes[0], matrices, titles):
        axis.imshow(matrix.numpy(), cmap="Blues", vmin=0, vmax=1)
        for i, row in enumerate(matrix.tolist()):
            for j, weight in enumerate(row):
                axis.text(
                    j,
                    i,
                    f"{weight:.2f}",
                    ha="center",
                    va="center",
                    color="white" if weight > 0.6 else "black",
                )
        axis.set_xticks(range(len(words)), words)
        axis.set_yticks(range(len(words)), words)
        axis.set_title(title)
    figure.tight_layout()


# %% [markdown]
# ## Queries, keys and values
#
# Each token has a vector x. A layer makes three vectors of it, by three matrices that it learns: the query q = x W_Q
# says what the token looks for, the key k = x W_K what it can be found by, and the value v = x W_V what it gives to
# those that find it. With one matrix for all three, each token would match itself best.

# %%
x = torch.tensor([[1.0, 2.0]])
w_q, w_k = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]])
x @ w_q, x @ w_k  # it looks for what it has in channel 0, and is found by what it has in channel 1

# %% [markdown]
# Now three tokens of two channels. We take the simplest projections: W_Q and W_K leave the vector as it is, and the
# value is a number that we can follow with the eye.

# %%
words = ["cat", "sat", "mat"]
q = k = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
v = torch.tensor([[10.0], [20.0], [30.0]])
scores = q @ k.T
scores

# %% [markdown]
# A score is the dot product of a query and a key. *cat* and *sat* have nothing in common, so their score is 0. Each of
# them scores 4 with itself, and 2 with *mat*.
#
# ## Scale, then softmax
#
# Softmax turns each row of scores into weights that sum to 1. Before that we divide by the square root of the number of
# channels, here 2.

# %%
weights = (scores / 2**0.5).softmax(dim=-1)
draw([scores.softmax(dim=-1), weights], ["not scaled", "divided by sqrt(2)"], words)

# %% [markdown]
# By hand, the first row is: scores 4, 0 and 2, divided by 1.414: 2.83, 0 and 1.41. Their exponentials are 16.9, 1 and
# 4.1. Their sum is 22.0, so the weights are 0.77, 0.05 and 0.19.
#
# **Why divide?** The dot product of two random vectors of `c` channels has the standard deviation sqrt(c). Without the
# division, wide vectors give large scores. Softmax then puts nearly all weight on one key, and its gradient vanishes.

# %%
for c in (4, 64, 1024):
    query, keys = torch.randn(1000, 1, c), torch.randn(1000, 8, c)
    raw = (query * keys).sum(dim=-1)
    largest = [x.softmax(dim=-1).max(dim=-1).values.mean() for x in (raw, raw / c**0.5)]
    print(
        f"{c:4} channels: scores ± {raw.std():5.2f}; largest weight {largest[0]:.2f} raw, {largest[1]:.2f} scaled"
    )

# %% [markdown]
# ## The output is a mean of values

# %%
output = weights @ v
output

# %% [markdown]
# *cat* gets 0.77 · 10 + 0.05 · 20 + 0.19 · 30 = 14.2. It is a weighted mean, so it lies between 10 and 30.
#
# ## Masks
#
# A mask says which keys a query may attend to. A score that is not allowed becomes minus infinity before the softmax,
# so its weight is exactly 0, and the other weights of the row still sum to 1.
#
# * **Causal**: token *i* sees tokens up to *i*. A language model needs this, as it must not see what it predicts.
# * **Padding**: a batch holds sequences of unequal length. No token may attend to the filler. Here *mat* is filler.

# %%
n = len(words)
causal = torch.ones(n, n, dtype=torch.bool).tril()
valid = torch.tensor([True, True, False])
padding = valid.expand(n, n)


def masked(allowed):
    return (scores / 2**0.5).masked_fill(~allowed, -torch.inf).softmax(dim=-1)


draw(
    [weights, masked(causal), masked(padding), masked(causal & padding)],
    ["none", "causal", "padding", "both"],
    words,
)

# %% [markdown]
# ## The same numbers from seqkit
#
# `ScaledDotProductAttention` takes queries, keys and values as [b h n c], and the mask in an `AttentionContext`.

# %%
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import ScaledDotProductAttention

mechanism = ScaledDotProductAttention(num_heads=1, head_dim=2)
ours = mechanism.attention_weights(q[None, None], k[None, None], AttentionContext(attn_mask=causal))
torch.testing.assert_close(ours[0, 0], masked(causal))
out = mechanism(q[None, None], k[None, None], v[None, None], AttentionContext(attn_mask=causal))
torch.testing.assert_close(out[0, 0], masked(causal) @ v)
out[0, 0]

# %% [markdown]
# You do not build the mask yourself. A backbone builds it from the batch: `valid` marks real tokens, and the backbone
# knows whether it is causal.

# %%
from seqkit.interfaces import Embedded
from seqkit.nn.attention.context import attention_context

embedded = Embedded(
    torch.zeros(1, n, 2), positions=torch.arange(3.0)[None, :, None], valid=valid[None]
)
context = attention_context(embedded, causal=True, num_heads=1, head_dim=2)
attended = mechanism.attention_weights(q[None, None], k[None, None], context)[0, 0]
torch.testing.assert_close(attended[valid], masked(causal & padding)[valid])
attended[valid]

# %% [markdown]
# ## Heads
#
# One head computes one set of weights. Several heads share the channels between them: with `dim=4` and two heads, each
# works on two channels with projections of its own. A last projection mixes their outputs. Here we repeat by hand what
# `MultiHeadAttention` does.

# %%
from seqkit.nn.attention.multi_head import MultiHeadAttention

layer = MultiHeadAttention(dim=4, num_heads=2).eval()
x = torch.randn(1, n, 4)
with torch.no_grad():
    query, key, value = (
        rearrange(part, "b n (h c) -> b h n c", h=2) for part in layer.qkv_proj(x).chunk(3, dim=-1)
    )
    by_head = (query @ rearrange(key, "b h m c -> b h c m") / 2**0.5).softmax(dim=-1)
    by_hand = layer.out_proj(rearrange(by_head @ value, "b h n c -> b n (h c)"))
    torch.testing.assert_close(by_hand, layer(x, AttentionContext()))
draw(list(by_head[0]), ["head 1", "head 2"], words)

# %% [markdown]
# ## Positions
#
# Attention alone does not know the order of its tokens: if we shuffle them, each token gets the same output as before.

# %%
order = torch.tensor([2, 0, 1])
with torch.no_grad():
    torch.testing.assert_close(
        layer(x[:, order], AttentionContext()), layer(x, AttentionContext())[:, order]
    )

# %% [markdown]
# So positions must be told. There are two ways.
#
# * **Added to the embeddings**: each position has a vector, such as sines and cosines of several wavelengths.
# * **Inside the attention**: the score of a query and a key depends on their distance. ALiBi subtracts a multiple of
#   the distance, with another slope for each head. Rotary turns queries and keys by an angle that grows with the
#   position.

# %%
from seqkit.nn.position.absolute import Sinusoidal
from seqkit.nn.position.bias import ALiBi

positions = torch.arange(32.0)[None, :, None]
vectors = Sinusoidal(32, 1)(positions)[0]
bias = ALiBi().bias(positions, positions, 4)[0]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
axes[0].imshow(vectors.numpy(), cmap="RdBu")
axes[0].set(title="sinusoids", xlabel="channel", ylabel="position")
axes[1].imshow(bias[0].numpy(), cmap="Blues")
axes[1].set(title="ALiBi, head 1", xlabel="key", ylabel="query")
for head, row in enumerate(bias[:, 16].softmax(dim=-1), start=1):
    axes[2].plot(row.numpy(), label=f"head {head}")
axes[2].set(title="weights of query 16 by ALiBi alone", xlabel="key")
axes[2].legend()
figure.tight_layout()

# %% [markdown]
# With equal scores, ALiBi alone makes a token attend to its neighbours. The first head looks at the nearest ones, and
# the last head sees nearly all tokens alike.
#
# A rotation keeps the lengths of a query and a key and turns each by its position. Positions change the score of a
# given query and a given key by their distance alone: if we move both by 7 positions, the scores stay the same.

# %%
from seqkit.nn.attention.multi_head import apply_rotary
from seqkit.nn.position.rotary import Rotary

query, key = torch.randn(1, 1, 32, 16), torch.randn(1, 1, 32, 16)


def rotated_scores(at):
    turns = Rotary().rotary(at, 16)
    return apply_rotary(query, turns) @ rearrange(apply_rotary(key, turns), "b h m c -> b h c m")


torch.testing.assert_close(
    rotated_scores(positions), rotated_scores(positions + 7), atol=1e-4, rtol=1e-4
)

# %% [markdown]
# Next: [attention in depth](../attention.md), [cheaper attention for long sequences](../efficient.md), and
# [the attention maps of a trained model](../viewer.md).
