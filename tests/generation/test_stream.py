"""The decoding loop: a cache or a batch changes nothing, and it stops where it should."""

import pytest
import torch
from generating import (
    MECHANISMS,
    ONE,
    RAGGED,
    TWO,
    VOCAB,
    columns,
    generating_model,
    last_logits,
    sources,
)

from seqkit.backbones import LSTM
from seqkit.generation import BeamSearch, Sampling, generate, stream
from seqkit.interfaces import IGNORE, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.kv_cache import KVCache
from seqkit.objectives import Classify

GREEDY = Sampling(temperature=0)
STRATEGIES = [
    GREEDY,
    Sampling(temperature=1.3),
    Sampling(top_k=3),
    Sampling(top_p=0.7),
    Sampling(min_p=0.1),
    Sampling(temperature=0, repetition_penalty=1.7),
    Sampling(temperature=0.9, top_k=7, top_p=0.95, min_p=0.01, repetition_penalty=1.2, seed=5),
]


@pytest.mark.parametrize("name", [*ONE, *TWO])
@pytest.mark.parametrize("context_length", [None, 6, 1])
def test_a_cache_changes_no_id(name, context_length):
    """Every strategy draws from the same logits: the likeliest id and the warps together are enough."""
    m, source = generating_model(name), sources(name)
    for strategy in (STRATEGIES[0], STRATEGIES[-1]):
        settings = {"source": source, "context_length": context_length, "sampling": strategy}
        got = columns(m, RAGGED, 17, use_cache=True, **settings)
        assert got.shape == (3, 17)
        assert got.equal(columns(m, RAGGED, 17, use_cache=False, **settings))
        assert len(got.unique()) > 1


@pytest.mark.slow
def test_long_texts_are_kept_whole():
    """Room for new ids is made for 64 at first, and then for twice as many each time."""
    m = generating_model("GRU")
    got = columns(m, RAGGED, 150, sampling=GREEDY, use_cache=True)
    assert got.equal(columns(m, RAGGED, 150, sampling=GREEDY, use_cache=False))
    for strategy in (GREEDY, BeamSearch(1)):
        assert torch.stack(generate(m, RAGGED, 150, strategy=strategy)).equal(got)


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_with_a_cache_gives_the_same_ids_without_it(name):
    m = generating_model(name)
    for strategy in STRATEGIES[:2]:
        got = columns(m, RAGGED, 11, sampling=strategy, use_cache=True)
        assert got.equal(columns(m, RAGGED, 11, sampling=strategy, use_cache=False))


def test_a_cache_with_wrong_keys_and_values_changes_ids(monkeypatch):
    m = generating_model()
    right = columns(m, RAGGED, 17, sampling=GREEDY)
    update = KVCache.update
    monkeypatch.setattr(
        KVCache, "update", lambda self, k, v: tuple(x * 0.9 for x in update(self, k, v))
    )
    assert not right.equal(columns(m, RAGGED, 17, sampling=GREEDY))


@pytest.mark.parametrize("name", [*ONE, *TWO])
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_decoding_takes_the_likeliest_after_the_whole_sequence(name, use_cache):
    m = generating_model(name)
    got = columns(m, RAGGED, 7, sampling=GREEDY, source=sources(name), use_cache=use_cache)
    for i, (row, ids) in enumerate(zip(got, RAGGED)):
        for new in row:
            assert int(new) == int(last_logits(m, ids, sources(name, [i])).argmax())
            ids = torch.cat([ids, new[None]])


@pytest.mark.parametrize(
    ("name", "strategy"),
    [(name, STRATEGIES[-1]) for name in (*ONE, *TWO)]
    + [("Transformer", strategy) for strategy in STRATEGIES[:-1]],
)
def test_a_batch_changes_no_id(name, strategy):
    m = generating_model(name)
    together = columns(m, RAGGED, 11, sampling=strategy, source=sources(name))
    for i, row in enumerate(together):
        own = Sampling(
            **{f: getattr(strategy, f) for f in strategy.__slots__} | {"seed": strategy.seed + i}
        )
        assert row.equal(columns(m, [RAGGED[i]], 11, sampling=own, source=sources(name, [i]))[0])


@pytest.mark.parametrize("prompt", [3, 6, 11])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_full_context_starts_afresh_from_its_last_half(prompt, use_cache):
    from seqkit.nn.position.absolute import Learned

    # no seventh position
    m = generating_model(position=lambda dim, num_axes: Learned(dim, num_axes, sizes=[6]))
    ids = torch.arange(prompt) % VOCAB
    got = columns(m, [ids], 13, sampling=GREEDY, context_length=6, use_cache=use_cache)[0]
    window = ids if prompt <= 6 else ids[-3:]
    for new in got:
        window = window if len(window) <= 6 else window[-3:]
        assert int(new) == int(last_logits(m, window).argmax())
        window = torch.cat([window, new[None]])


@pytest.mark.parametrize("strategy", [GREEDY, BeamSearch(2)])
def test_a_table_of_positions_that_is_too_short_is_refused_before_the_first_step(
    monkeypatch, strategy
):
    from seqkit.nn.position.absolute import Learned

    m = generating_model(position=lambda dim, num_axes: Learned(dim, num_axes, sizes=[6]))
    fits = {"max_new_tokens": 3, "strategy": strategy}
    generate(m, [torch.arange(4)], **fits)  # the third new token is not embedded
    generate(m, [torch.arange(7)], 30, strategy=strategy, context_length=6)
    monkeypatch.setattr(
        Model, "forward", lambda *args, **settings: pytest.fail("generation has started")
    )
    for prompt, settings in ((torch.arange(5), {}), (torch.arange(7), {"context_length": 7})):
        with pytest.raises(ValueError, match="table has 6") as error:
            generate(m, [prompt], **fits, **settings)
        assert "\n" not in str(error.value)
        assert "--tokens on the command line), or give context_length=6 or less" in str(error.value)


def test_a_seed_repeats_and_another_differs_whatever_the_global_generator_does():
    m = generating_model()
    first = columns(m, RAGGED, 11, sampling=Sampling(seed=3))
    torch.manual_seed(99)
    assert first.equal(columns(m, RAGGED, 11, sampling=Sampling(seed=3)))
    assert not first.equal(columns(m, RAGGED, 11, sampling=Sampling(seed=4)))


@pytest.mark.parametrize("name", ["Transformer", "GRU, Bahdanau"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_prohibitive_repetition_penalty_gives_no_id_twice(name, use_cache):
    """Neither one of the prompt, at any place of it, nor one that was generated."""
    m = generating_model(name)
    m.head.linear.bias.data -= 100.0  # below zero a logit is multiplied
    sampling = Sampling(temperature=0, repetition_penalty=1e6)
    num_unseen = min(VOCAB - len(prompt.unique()) for prompt in RAGGED)
    got = columns(
        m, RAGGED, num_unseen, sampling=sampling, source=sources(name), use_cache=use_cache
    )
    for prompt, row in zip(RAGGED, got):
        assert len(row.unique()) == num_unseen
        assert not torch.isin(row, prompt).any()


def test_only_the_k_likeliest_are_drawn_and_all_of_them():
    m, prompt = generating_model(), torch.tensor([3, 1])
    likely = set(last_logits(m, prompt).topk(3).indices.tolist())
    drawn = columns(m, [prompt] * 300, 1, sampling=Sampling(top_k=3, temperature=5.0))
    assert set(drawn[:, 0].tolist()) == likely
    assert (
        len(columns(m, [prompt] * 300, 1, sampling=Sampling(top_k=99, temperature=5.0)).unique())
        > 3
    )
    assert columns(m, RAGGED, 5, sampling=Sampling(top_k=1)).equal(
        columns(m, RAGGED, 5, sampling=GREEDY)
    )


@pytest.mark.parametrize("name", ["Transformer", "LSTM", "GRU, Bahdanau"])
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("strategy", [Sampling(seed=2), Sampling(seed=2, repetition_penalty=1.5)])
def test_a_sequence_ends_with_its_stop_id_and_the_others_go_on_as_if_alone(
    name, use_cache, strategy
):
    m, source = generating_model(name), sources(name, [0, 1, 2, 2, 1, 0, 0])
    prompts = [*RAGGED, *RAGGED, RAGGED[0]]
    free = columns(m, prompts, 23, sampling=strategy, source=source)
    stop = sorted({int(free[0, 4]), int(free[1, 9])})
    settings = {"source": source, "stop": stop, "use_cache": use_cache}
    got = columns(m, prompts, 23, sampling=strategy, **settings)
    whole = generate(m, prompts, 23, strategy=strategy, **settings)
    ended = 0
    for row, streamed, ids in zip(free, got, whole):
        at = next((i for i, new in enumerate(row.tolist()) if new in stop), None)
        ended += at is not None
        assert ids.equal(row[:at])
        end = len(streamed) if at is None else at + 1
        assert streamed[:end].equal(row[:end])
        assert (streamed[end:] == IGNORE).all()
    assert ended > 3


def test_generation_ends_when_all_sequences_have():
    m = generating_model()
    first = columns(m, RAGGED, 1, sampling=GREEDY)[:, 0].tolist()
    assert columns(m, RAGGED, 23, sampling=GREEDY, stop=first).shape == (3, 1)
    assert [len(ids) for ids in generate(m, RAGGED, 23, strategy=GREEDY, stop=first)] == [0, 0, 0]


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_meanwhile_and_the_mode_comes_back(training):
    m = generating_model(dropout=0.5).train(training)
    steps = stream(m, RAGGED, 3)
    next(steps)
    assert not m.training
    list(steps)
    assert m.training == training
    steps = stream(m, RAGGED, 3)
    next(steps)
    steps.close()  # a caller who stops early
    assert m.training == training
    generate(m, RAGGED, 3, strategy=BeamSearch(2))
    assert m.training == training


def test_generated_ids_can_be_trained_on_and_gradients_stay_on_outside():
    m = generating_model()
    generated = []
    for new in stream(m, RAGGED, 3, stop=[1, 2, 3, 4, 5, 6]):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        generated.append(new)
    ids = torch.stack(generated, dim=1).clamp(min=0)
    m.embedder.content(ids).sum().backward()
    (best,) = generate(m, RAGGED[:1], 3, strategy=BeamSearch(2))
    m.embedder.content(best).sum().backward()
    assert m.embedder.content.weight.grad.abs().max() > 0


@pytest.mark.parametrize("function", [stream, generate])
@pytest.mark.parametrize(
    ("prompts", "steps", "settings", "message"),
    [
        ([], 3, {}, "there are no prompts"),
        ([RAGGED[0], torch.zeros(0).long()], 3, {}, "prompt 1 has no tokens"),
        ([torch.tensor([5, 13])], 3, {}, "prompt 0 .*from 5 to 13"),
        ([torch.ones(3)], 3, {}, "prompt 0 holds torch.float32"),
        (RAGGED, 0, {}, "max_new_tokens=0 counts"),
        (RAGGED, -3, {}, "max_new_tokens=-3 counts"),
        (RAGGED, 3, {"context_length": 0}, "context_length=0"),
        (RAGGED, 3, {"stop": [13]}, "stop id 13"),
        (RAGGED, 3, {"stop": [-1]}, "stop id -1"),
        (RAGGED, 3, {"source": sources("GRU, Bahdanau")}, "this model takes one sequence"),
    ],
)
def test_impossible_arguments_are_refused_at_once(function, prompts, steps, settings, message):
    with pytest.raises(ValueError, match=message) as error:
        function(generating_model(), prompts, steps, **settings)
    assert "\n" not in str(error.value)


def test_a_source_is_required_with_an_example_for_each_prompt():
    m = generating_model("GRU, Bahdanau")
    with pytest.raises(ValueError, match="from another"):
        stream(m, RAGGED, 3)
    with pytest.raises(ValueError, match="2 examples beside 3 prompts"):
        stream(m, RAGGED, 3, source=sources("GRU, Bahdanau", [0, 1]))


@pytest.mark.parametrize("strategy", [GREEDY, Sampling(seed=3), BeamSearch(3)])
@pytest.mark.parametrize("name", ["Transformer", "LSTM"])
def test_tokens_without_positions_are_generated(name, strategy):
    m = generating_model(name, num_axes=0)
    cached, uncached = (
        generate(m, RAGGED, 11, strategy=strategy, use_cache=use_cache)
        for use_cache in (True, False)
    )
    for got, right, prompt in zip(cached, uncached, RAGGED):
        assert got.equal(right)
        if strategy is GREEDY:
            ids = torch.cat([prompt, got])
            for t in range(len(got)):
                assert int(last_logits(m, ids[: len(prompt) + t]).argmax()) == int(got[t])
    assert isinstance(strategy, BeamSearch) or len(torch.cat(cached).unique()) > 1


@pytest.mark.parametrize("function", [stream, generate])
def test_tokens_of_two_axes_are_refused(function):
    with pytest.raises(ValueError, match="one axis") as error:
        function(generating_model(num_axes=2), RAGGED, 3)
    assert "\n" not in str(error.value)


def test_a_bidirectional_model_cannot_generate():
    objective = Classify()
    objective.fit([0, 1], None)
    with pytest.raises(ValueError, match="causal"):
        stream(Model(TokenSpec(vocab_size=VOCAB), LSTM(24), objective), RAGGED, 3)
