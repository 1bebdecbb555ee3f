# %% [markdown]
# # Plug in a tokenizer
#
# After this notebook you can bring data of a kind that seqkit does not know, and train any backbone on it.
#
# Our example is a chess opening: a list of moves such as `e2e4`. A tokenizer is one class with two members. `spec` says
# what shape the tokens have, and `encode` makes them.

# %%
import torch

from seqkit import DataError, Tokenizer, Tokens, TokenSpec, register

SQUARES = [f"{file}{rank}" for rank in range(1, 9) for file in "abcdefgh"]


@register("tokenizer", "Moves", what="chess moves, one token each", when="openings and games")
class Moves(Tokenizer):
    """Moves such as e2e4, from a square to a square: two ids a token; positions count moves."""

    spec = TokenSpec(vocab_sizes=(64, 64), num_axes=1)
    examples = (["e2e4", "e7e5"], ["d2d4"])

    def encode(self, raw, /):
        """Tokens of a list of moves. Raises DataError for a move that names no two squares."""
        if not isinstance(raw, list) or not raw:
            raise DataError(f"a game is a list of moves, at least one, but this is {raw!r}")
        if wrong := [move for move in raw if move[:2] not in SQUARES or move[2:] not in SQUARES]:
            raise DataError(f"{wrong[0]!r} is no move; write two squares, such as e2e4")
        # [n 2]
        content = torch.tensor([[SQUARES.index(move[:2]), SQUARES.index(move[2:])] for move in raw])
        # [n 1]
        return Tokens(
            content=content, positions=torch.arange(len(raw), dtype=torch.float32)[:, None]
        )


# %% [markdown]
# A raw example goes in, and content and positions come out. Nobody writes a layer for it: the model builds the
# embedding from `spec`.

# %%
Moves().encode(["e2e4", "e7e5", "g1f3"]).content

# %% [markdown]
# ## Check the laws
#
# `seqkit.testing` holds the laws of every tokenizer: the same raw example gives the same tokens, tokens fit the `spec`,
# nothing is changed in place, a broken input is a `DataError`, and more.

# %%
from seqkit.testing import check_tokenizer

openings = [["e2e4", "e7e5"], ["d2d4", "g8f6", "c2c4"]]
check_tokenizer(Moves(), openings, bad=[[], "e2e4", ["e2e9"]])

# %% [markdown]
# These laws hold. A tokenizer that breaks one gets a sentence that names the law. This one shuffles the moves:


# %%
class Shuffled(Moves):
    """Moves in another order each time."""

    def encode(self, raw, /):
        """Tokens of the moves, shuffled."""
        tokens = super().encode(raw)
        return Tokens(
            content=tokens.content[torch.randperm(len(tokens))], positions=tokens.positions
        )


try:
    check_tokenizer(Shuffled(), openings)
except AssertionError as error:
    print(error)

# %% [markdown]
# ## Give it data
#
# A data source returns samples in splits. Ours plays random openings. White begins with a pawn of the king's side
# (class *king*) or of the queen's side (class *queen*), at any of the first four moves.

# %%
from seqkit.data import DataSource, Sample, Splits


@register("data_source", "openings", what="random openings", when="to try Moves")
class Openings(DataSource):
    """240 random openings of 4 to 8 moves; a quarter is test."""

    def splits(self):
        """Samples by split."""
        generator = torch.Generator().manual_seed(0)
        samples = [self._opening(i % 2, generator) for i in range(240)]
        return Splits(train=samples[60:], test=samples[:60], names=["king", "queen"])

    def _opening(self, label, generator):
        def draw(low, high):
            return int(torch.randint(low, high, (), generator=generator))

        moves = [f"{SQUARES[draw(0, 64)]}{SQUARES[draw(0, 64)]}" for _ in range(draw(4, 9))]
        moves[draw(0, 4)] = ("e2e4", "d2d4")[label]
        return Sample(moves, label)


# %% [markdown]
# ## Train
#
# A recipe may be a mapping, a YAML file or a name. The new components are named like any other.

# %%
import seqkit

recipe = {
    "recipe": "openings",
    "data": {"source": "openings", "batch_size": 16},
    "tokenizer": "Moves",
    "model": {
        "objective": "Classify",
        "position": "Sinusoidal",
        "backbone": {"type": "Transformer", "dim": 32, "depth": 2, "num_heads": 4},
    },
    "optimizer": {"type": "AdamW", "lr": 0.003},
    "trainer": {"max_epochs": 10, "enable_progress_bar": False},
}
run = seqkit.fit(recipe, out="runs/openings")
print(
    f"test accuracy {100 * run.summary['metrics']['accuracy']:.0f} %; "
    f"best constant {100 * run.summary['baseline']['accuracy']:.0f} %"
)

# %%
run.predict([["g1f3", "g8f6", "e2e4", "e7e5"], ["g1f3", "g8f6", "d2d4", "d7d5"]])

# %% [markdown]
# ## Keep it in a file
#
# Save the two classes as `openings.py`. Then every command knows them:
# `seqkit fit openings.yaml --plugin openings.py`. `seqkit new tokenizer` writes such a file to begin with.
#
# Next: [everything that a tokenizer can do](../write-a-tokenizer.md), and
# [several modalities in one model](several-modalities.py), where yours is a part like any other.
