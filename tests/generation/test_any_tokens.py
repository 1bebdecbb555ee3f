"""Tokens of any kind go on as one pass over them would say: fields, numbers, measured positions, edges."""

from functools import partial

import pytest
import torch

from seqkit.backbones import GRU, Transformer
from seqkit.cli.main import main
from seqkit.generation import Sampling, continue_tokens, generate
from seqkit.interfaces import Adjacency, Tokenizer, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import Learned
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Masked, NextToken

GREEDY = Sampling(temperature=0)


class Text(Tokenizer):
    spec = TokenSpec(vocab_size=13)

    def encode(self, raw, /):
        return Tokens(torch.tensor(raw), torch.arange(float(len(raw)))[:, None])


class Notes(Tokenizer):
    """Pitch and duration, loudness beside them; a note begins when the one before it ends."""

    spec = TokenSpec(vocab_sizes=(7, 5), num_features=1)

    def encode(self, raw, /):
        content = torch.tensor(raw)
        onsets = content[:, 1].cumsum(0).roll(1).float()
        onsets[0] = 0.0
        return Tokens(content, onsets[:, None], features=content[:, :1] / 7)

    def continues(self, tokens, content):
        onset = tokens.positions[-1] + tokens.content[-1, 1]
        return tokens.append(content, onset, features=content[:1] / 7)


class Chain(Tokenizer):
    """Residues that attend to the two before them."""

    spec = TokenSpec(vocab_size=9, num_edge_types=2)

    def encode(self, raw, /):
        n = len(raw)
        pairs = [(j, i, i - j) for i in range(n) for j in range(max(0, i - 2), i)]
        edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 3).T
        return Tokens(
            torch.tensor(raw), torch.arange(float(n))[:, None], Adjacency(edges[:2], edges[2])
        )

    def continues(self, tokens, content):
        n = len(tokens)
        near = torch.arange(max(0, n - 2), n)
        edges = Adjacency(torch.stack([near, torch.full_like(near, n)]), n - near)
        return tokens.append(content, tokens.positions[-1] + 1, edges=edges)


def sharp(spec, backbone, objective=None):
    torch.manual_seed(0)
    model = Model(spec, backbone, objective or NextToken()).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * (0.5 if p.ndim > 1 else 0.1))
    return model


def stack(causal=True):
    return Transformer(24, 2, num_heads=3, causal=causal, position=Rotary())


BACKBONES = {
    "Transformer": stack,
    "either": lambda: stack(None),
    "GRU": lambda: GRU(24, causal=True),
}


def no_cache(model, monkeypatch):
    def refuse(max_tokens):
        raise ValueError("no cache")

    monkeypatch.setattr(model.backbone, "init_cache", refuse)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize(
    "sampling", [GREEDY, Sampling(temperature=0.7, top_k=5, repetition_penalty=1.3, seed=3)]
)
@pytest.mark.parametrize("context", [None, 6])
def test_plain_ids_go_on_as_in_the_loop_of_ids(backbone, sampling, context):
    model, tokenizer = sharp(Text.spec, BACKBONES[backbone]()), Text()
    prompts = [tokenizer.encode(raw) for raw in ([3, 1, 4], [1], [5, 9, 2, 6, 5, 3, 5])]
    right = generate(
        model, [x.content for x in prompts], 9, strategy=sampling, context_length=context
    )
    got = continue_tokens(
        model, prompts, 9, tokenizer.continues, sampling=sampling, context_length=context
    )
    assert [x.content[len(p) :].tolist() for x, p in zip(got, prompts, strict=True)] == [
        ids.tolist() for ids in right
    ]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=5), Sampling(repetition_penalty=2.0)])
def test_fields_with_numbers_go_on_alike_with_a_cache_and_without(backbone, sampling, monkeypatch):
    model, tokenizer = sharp(Notes.spec, BACKBONES[backbone]()), Notes()
    prompts = [tokenizer.encode(raw) for raw in ([[3, 1], [0, 4]], [[6, 2]])]
    got = continue_tokens(model, prompts, 8, tokenizer.continues, sampling=sampling)
    for tokens in got:
        # onsets and loudness are those of the notes
        assert tokens.equals(tokenizer.encode(tokens.content.tolist()))
        assert len(tokens.content.unique(dim=0)) > 2
    no_cache(model, monkeypatch)
    again = continue_tokens(model, prompts, 8, tokenizer.continues, sampling=sampling)
    assert all(x.equals(y) for x, y in zip(got, again, strict=True))
    if sampling is GREEDY:
        alone = [
            continue_tokens(model, [x], 8, tokenizer.continues, sampling=sampling)[0]
            for x in prompts
        ]
        assert all(x.equals(y) for x, y in zip(got, alone, strict=True))


def test_each_choice_is_the_likeliest_of_one_pass():
    model, tokenizer = sharp(Notes.spec, stack()), Notes()
    (found,) = continue_tokens(
        model, [tokenizer.encode([[2, 1]])], 6, tokenizer.continues, sampling=GREEDY
    )
    inputs = NextToken().prepare(_batch(found), None)
    assert model(inputs.batch).argmax(dim=-1)[0].equal(found.content[1:])


def _batch(*examples):
    from seqkit.interfaces import TokenBatch

    return TokenBatch.collate(examples)


def test_tokens_with_edges_go_on_along_their_edges():
    model, tokenizer = sharp(Chain.spec, stack()), Chain()
    model.backbone.edge_biases["3"].weight.data.normal_()
    prompts = [tokenizer.encode(raw) for raw in ([3, 1, 4, 1], [5])]
    found = continue_tokens(model, prompts, 7, tokenizer.continues, sampling=GREEDY)
    for tokens, prompt in zip(found, prompts, strict=True):
        right = tokenizer.encode(tokens.content.tolist())
        assert tokens.content.equal(right.content)
        assert _edges(tokens) == _edges(right)
        chosen = model(NextToken().prepare(_batch(right), None).batch).argmax(dim=-1)[0]
        assert chosen[len(prompt) - 1 :].equal(tokens.content[len(prompt) :])


def _edges(tokens):
    return set(
        zip(*tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist(), strict=True)
    )


def test_a_long_context_goes_on_from_its_last_half_moved_to_the_beginning():
    model, tokenizer, seen = sharp(Notes.spec, stack()), Notes(), []
    model.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    continue_tokens(
        model,
        [tokenizer.encode([[1, 2]] * 5)],
        4,
        tokenizer.continues,
        context_length=6,
        sampling=GREEDY,
    )
    assert [x.valid.shape[1] for x in seen] == [5, 1, 3, 1]
    assert seen[2].positions[0, 0] == 0.0


class Pairs(Tokenizer):
    """Two ids a token, at positions 0, 1, 2, …"""

    spec = TokenSpec(vocab_sizes=(7, 5))

    def encode(self, raw, /):
        return Tokens(torch.tensor(raw), torch.arange(float(len(raw)))[:, None])


@pytest.mark.parametrize("first", [0, 2])
def test_a_learned_table_that_is_too_short_is_refused_before_the_first_token(first):
    tokenizer, seen = Pairs(), []
    backbone, position = (
        Transformer(24, 1, num_heads=3, causal=True),
        partial(Learned, sizes=[16 + first], first=first),
    )
    model = Model(tokenizer.spec, backbone, NextToken(), position=position)
    prompt = tokenizer.encode([[1, 2]] * 4)
    # the last one is in no context
    assert len(continue_tokens(model, [prompt], 13, tokenizer.continues)[0]) == 17
    continue_tokens(model, [prompt], 30, tokenizer.continues, context_length=16)
    model.register_forward_pre_hook(lambda _module, args: seen.append(args))
    with pytest.raises(ValueError, match="17 positions"):
        continue_tokens(model, [prompt], 14, tokenizer.continues)
    assert not seen


@pytest.mark.parametrize("wrong", [
    lambda tokens, content: tokens,
    lambda tokens, content: tokens.append((content + 1) % 5, tokens.positions[-1], features=torch.zeros(1)),
])  # fmt: skip
def test_a_tokenizer_that_does_not_go_on_is_named(wrong):
    model, tokenizer = sharp(Notes.spec, stack()), Notes()
    with pytest.raises(ValueError, match="continues"):
        continue_tokens(model, [tokenizer.encode([[1, 2]])], 2, wrong)


@pytest.mark.parametrize(("model", "number", "message"), [
    (lambda: sharp(Notes.spec, stack(False), Masked()), 1, "NextToken"),
    (lambda: sharp(Notes.spec, stack()), 0, "1 or more"),
])  # fmt: skip
def test_what_cannot_go_on_is_refused(model, number, message):
    with pytest.raises(ValueError, match=message):
        continue_tokens(model(), [Notes().encode([[1, 2]])], number, Notes().continues)


def test_what_is_not_counted_needs_a_method_of_its_own():
    tokens = Tokens(torch.tensor([1, 2]), torch.tensor([[0.0], [0.5]]))
    with pytest.raises(ValueError, match="continues"):
        Text().continues(tokens, torch.tensor(3))
    assert Text().continues(Text().encode([4, 2]), torch.tensor(7)).equals(Text().encode([4, 2, 7]))


PLUGIN = """
import random
import torch
from seqkit.data import DataSource, Sample, Splits
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.registry import register


@register("tokenizer")
class Notes(Tokenizer):
    spec = TokenSpec(vocab_sizes=(7, 3))

    def encode(self, raw, /):
        content = torch.tensor([[int(x) for x in note.split(":")] for note in raw.split()])
        return Tokens(content, content[:, 1:].cumsum(0).float())

    def continues(self, tokens, content):
        return tokens.append(content, tokens.positions[-1] + content[1])

    def decode(self, tokens):
        return " ".join(f"{pitch}:{length}" for pitch, length in tokens.content.tolist())


@register("data_source")
class Scales(DataSource):
    def splits(self):
        rng = random.Random(0)
        def scale():
            first = rng.randrange(7)
            return Sample(" ".join(f"{(first + i) % 7}:{1 + i % 2}" for i in range(rng.randrange(6, 12))))
        return Splits([scale() for _ in range(200)], [scale() for _ in range(20)])
"""

RECIPE = """
data: {source: scales, batch_size: 16, valid_fraction: 0}
tokenizer: Notes
model:
  objective: NextToken
  backbone: {type: GRU, dim: 32, depth: 1, causal: true}
optimizer: {type: AdamW, lr: 0.05}
trainer: {max_epochs: 4, weights: last}
"""


@pytest.mark.slow
def test_notes_go_on_from_the_command_line(tmp_path, capsys):
    plugin, recipe, run = tmp_path / "notes.py", tmp_path / "scales.yaml", tmp_path / "run"
    plugin.write_text(PLUGIN)
    recipe.write_text(RECIPE)
    assert main(["fit", str(recipe), "--plugin", str(plugin), "--out", str(run)]) == 0
    capsys.readouterr()
    options = ["--tokens", "5", "--temperature", "0", "--plugin", str(plugin)]
    assert main(["generate", str(run), "--prompt", "2:1 3:2 4:1", *options]) == 0
    assert capsys.readouterr().out == "2:1 3:2 4:1 5:2 6:1 0:2 1:1 2:2\n"
    assert main(["generate", str(run), *options]) != 0
    assert "--prompt" in capsys.readouterr().err
