"""Laws of the page over a module's doors (`call`, `step`, `reorder`) and over `generate`, each of which gives a size.

Vectors are drawn with the seeds that the examples name, so that an example and its cell give one number.

b batch · n tokens · d width · t new tokens · v vocabulary
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqkit.testing.checks import NotCheckedError
from seqkit.testing.generated import generate


@dataclass
class Subject:
    """A module with its doors, as `seqkit.testing.check` takes them.

    draw: vectors [b n d] for b, n and a seed. causal: no token depends on a later one. takes_mask: padding may be
    anywhere; False: it takes no mask, or says that it does not use it. model: with its head, for `generate`.
    state_inside: its state is inside of the module, and it says so. warns_of_masks: it says that it does not use them.
    """

    module: nn.Module
    draw: Callable[[int, int, int], Tensor]
    call: Callable[[nn.Module, Tensor, Tensor], Tensor]
    causal: bool
    takes_mask: bool = True
    step: Callable[..., Any] | None = None
    reorder: Callable[..., Any] | None = None
    model: Any = None
    state_inside: bool = False
    warns_of_masks: bool = False

    def __call__(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.call(self.module, x, all_valid(x) if valid is None else valid)

    def after(self, x: Tensor, state: Any = None, valid: Tensor | None = None) -> Any:
        """Vectors of the columns x after a state, and the next state."""
        if self.step is None:
            raise NotCheckedError("has no cache")
        return self.step(self.module, x, all_valid(x) if valid is None else valid, state)


def all_valid(x: Tensor) -> Tensor:
    """A mask [b n] without padding."""
    return torch.ones(x.shape[:2], dtype=torch.bool)


def padded(x: Tensor, columns: slice, row: int = 0) -> Tensor:
    """A mask [b n] whose columns are padding in one row."""
    valid = all_valid(x)
    valid[row, columns] = False
    return valid


def gap(got: Tensor, right: Tensor) -> float:
    """The largest difference as a share of the largest right number; infinite for NaN."""
    if got.shape != right.shape:
        raise NotCheckedError(f"gives {list(got.shape)}, not {list(right.shape)}")
    share = (got - right).abs().max() / right.abs().max()
    return float(share.nan_to_num(torch.inf))


def needs_mask(subject: Subject) -> None:
    """Raises NotCheckedError for a subject that takes no mask."""
    if not subject.takes_mask:
        raise NotCheckedError("takes no mask, or says that it does not use it")


# ── forward ──


def right_padding(s: Subject) -> float:
    """Tokens before padding are as without it."""
    if not s.causal:
        needs_mask(s)
    x = s.draw(1, 14, 1)
    return gap(s(x, padded(x, slice(9, 14)))[:, :9], s(x[:, :9]))


def left_padding(s: Subject) -> float:
    """Tokens behind padding are as without it."""
    needs_mask(s)
    x = s.draw(1, 14, 1)
    return gap(s(x, padded(x, slice(0, 5)))[:, 5:], s(x[:, 5:]))


def left_padding_beside_a_longer_one(s: Subject) -> float:
    """The same, in a batch whose other row has no padding."""
    needs_mask(s)
    x = s.draw(2, 14, 2)
    return gap(s(x, padded(x, slice(0, 5)))[:1, 5:], s(x[:1, 5:]))


def padding_inside(s: Subject) -> float:
    """Other tokens under the mask, between valid ones, change nothing."""
    needs_mask(s)
    x = s.draw(1, 20, 15)
    other = x.clone()
    other[:, 6:10] = s.draw(1, 4, 16)
    valid = padded(x, slice(6, 10))
    return gap(s(other, valid)[valid], s(x, valid)[valid])


def no_future(s: Subject) -> float:
    """Other tokens later on change no earlier one, of 131 columns."""
    if not s.causal:
        raise NotCheckedError("attends both ways")
    x = s.draw(1, 131, 3)
    right = s(x)
    sizes = []
    for cut in (1, 40, 64, 100):
        other = x.clone()
        other[:, cut:] = s.draw(1, 131 - cut, 4)
        sizes.append(gap(s(other)[:, :cut], right[:, :cut]))
    return max(sizes)


def one_token(s: Subject) -> float:
    """A sequence of one token gives what the first of many does."""
    if not s.causal:
        raise NotCheckedError("attends both ways")
    x = s.draw(1, 9, 17)
    return gap(s(x[:, :1]), s(x)[:, :1])


def mates(s: Subject) -> float:
    """A row gives alone what it gives in a batch."""
    x = s.draw(2, 20, 5)
    return gap(s(x)[:1], s(x[:1]))


def mates_in_training(s: Subject) -> float:
    """The same in training mode, without dropout."""
    x = s.draw(2, 20, 5)
    with _training(s):
        return gap(s(x)[:1], s(x[:1]))


def training_is_evaluation(s: Subject) -> float:
    """Without dropout, training mode gives what evaluation does."""
    x = s.draw(1, 20, 5)
    right = s(x)
    with _training(s):
        return gap(s(x), right)


@contextlib.contextmanager
def _training(s: Subject) -> Iterator[None]:
    """Context in which a module is in training mode. Raises NotCheckedError if it is random there."""
    rates = {each: each.p for each in s.module.modules() if isinstance(each, nn.Dropout)}
    for each in rates:
        each.p = 0.0
    s.module.train()
    try:
        x = s.draw(1, 20, 5)
        if not torch.equal(s(x), s(x)):
            raise NotCheckedError("random in training")
        yield
    finally:
        s.module.eval()
        for each, rate in rates.items():
            each.p = rate


def gradients(s: Subject) -> float:
    """Gradients of a batch that is padded on the right are the sum of those of its rows."""
    if not s.causal:
        needs_mask(s)
    x = s.draw(2, 20, 18)
    valid = padded(x, slice(12, 20), row=1)
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(19)).to(x)
    named = [p for p in s.module.parameters() if p.requires_grad]

    def slopes(*losses: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(sum(losses), named, allow_unused=True)
        return [
            x if g is None else g for x, g in zip(map(torch.zeros_like, named), found, strict=True)
        ]

    with torch.enable_grad():
        together = slopes((s(x, valid) * weight)[valid].sum())
        first = (s(x[:1]) * weight[:1]).sum()
        second = (s(x[1:, :12]) * weight[1:, :12]).sum()
        apart = slopes(first, second)
    largest = max(float(g.abs().max()) for g in apart)
    return max(float((g - h).abs().max()) for g, h in zip(together, apart, strict=True)) / largest


# ── cache, in a loop of one's own ──


def steps(s: Subject) -> float:
    """A prompt of 36 tokens, then 4 single ones, give what all give at once."""
    x = s.draw(1, 40, 7)
    return gap(_read(s, x, [36, 1, 1, 1, 1]), s(x))


def steps_from_nothing(s: Subject) -> float:
    """Single tokens from the first on give what all give at once."""
    x = s.draw(1, 7, 20)
    return gap(_read(s, x, [1] * 7), s(x))


def prompt_in_parts(s: Subject) -> float:
    """A prompt in two parts gives what it gives at once."""
    x = s.draw(1, 40, 7)
    return gap(_read(s, x, [21, 19]), s(x))


def steps_of_two_rows(s: Subject) -> float:
    """Two rows, step by step, give what each gives at once."""
    x = s.draw(2, 12, 21)
    return gap(_read(s, x, [9, 1, 1, 1]), torch.cat([s(x[:1]), s(x[1:])]))


def _read(s: Subject, x: Tensor, lengths: list[int]) -> Tensor:
    state = None
    parts = []
    for part in x.split(lengths, dim=1):
        y, state = s.after(part, state)
        parts.append(y)
    return torch.cat(parts, dim=1)


def right_padded_prompts(s: Subject) -> float:
    """Prompts of 9 and 6 tokens, padded on the right, then a token each."""
    needs_mask(s)
    x = s.draw(2, 10, 8)
    _, state = s.after(x[:, :9], None, padded(x[:, :9], slice(6, 9), row=1))
    got, _ = s.after(x[:, 9:], state)
    return gap(got[1, -1], s(torch.cat([x[1:, :6], x[1:, 9:]], dim=1))[0, -1])


def left_padded_prompts(s: Subject) -> float:
    """Prompts of 9 and 6 tokens, padded on the left, then a token each."""
    needs_mask(s)
    x = s.draw(2, 10, 8)
    _, state = s.after(x[:, :9], None, padded(x[:, :9], slice(0, 3), row=1))
    got, _ = s.after(x[:, 9:], state)
    return gap(got[1, -1], s(x[1:, 3:])[0, -1])


def left_padded_prompt_in_parts(s: Subject) -> float:
    """A prompt of 35 columns, 15 of them padding on the left, in two parts; the first has padding alone."""
    needs_mask(s)
    x = s.draw(1, 35, 11)
    valid = padded(x, slice(0, 15))
    _, state = s.after(x[:, :12], None, valid[:, :12])
    got, _ = s.after(x[:, 12:], state, valid[:, 12:])
    return gap(got[:, 3:], s(x[:, 15:]))


def beams_change_places(s: Subject) -> float:
    """Two rows change places, then get a token each."""
    _keeps_state_outside(s)
    x = s.draw(2, 13, 12)
    _, state = s.after(x[:, :12])
    if s.reorder is None:
        raise NotCheckedError("its state cannot be reordered")
    got, _ = s.after(x[:, 12:], s.reorder(state, torch.tensor([1, 0])))
    right = s(torch.cat([x[[1, 0], :12], x[:, 12:]], dim=1))
    return gap(got[:, -1], right[:, -1])


def states_are_apart(s: Subject) -> float:
    """Two sequences that are read in turns give what each gives alone."""
    _keeps_state_outside(s)
    x = s.draw(1, 12, 13)
    other = s.draw(1, 12, 14)
    _, one = s.after(x[:, :9])
    _, two = s.after(other[:, :9])
    got, one = s.after(x[:, 9:10], one)
    s.after(other[:, 9:10], two)
    last, _ = s.after(x[:, 10:11], one)
    return gap(torch.cat([got, last], dim=1), s(x)[:, 9:11])


def other_calls_move_nothing(s: Subject) -> float:
    """A call without a state, as of a warm-up, moves no state."""
    _keeps_state_outside(s)
    x = s.draw(1, 12, 13)
    _, state = s.after(x[:, :11])
    s.after(s.draw(1, 5, 22))
    got, _ = s.after(x[:, 11:], state)
    return gap(got, s(x)[:, 11:])


def _keeps_state_outside(s: Subject) -> None:
    if s.state_inside:
        raise NotCheckedError("keeps its state inside, and says so")


# ── generate ──


def generate_left_padded(s: Subject) -> float:
    """A left-padded prompt beside a longer one is continued as alone."""
    if s.warns_of_masks:
        needs_mask(s)
    ids = _ids(s, 2, 31)
    valid = padded(ids, slice(0, 9)).long()
    alone = _logits(s, ids[:1, 9:])[:, :2]
    return gap(_logits(s, ids, valid)[:1, :2], alone)


def generate_of_two_rows(s: Subject) -> float:
    """Two prompts are continued as each alone."""
    ids = _ids(s, 2, 31)
    return gap(_logits(s, ids)[:, :2], torch.cat([_logits(s, ids[:1]), _logits(s, ids[1:])])[:, :2])


def generate_uncached(s: Subject) -> float:
    """`use_cache=False` gives the logits of the first tokens that a cache gives."""
    ids = _ids(s, 1, 31)
    return gap(_logits(s, ids, use_cache=False)[:, :2], _logits(s, ids)[:, :2])


def generate_in_parts(s: Subject) -> float:
    """`prefill_chunk_size=8` changes nothing."""
    ids = _ids(s, 1, 31)
    return gap(_logits(s, ids, prefill_chunk_size=8)[:, :1], _logits(s, ids)[:, :1])


def generate_beams(s: Subject) -> float:
    """Scores of three beams of two rows, after eight tokens, are those that they have without a cache."""
    ids = _ids(s, 2, 31)
    lengths = {"max_new_tokens": 8, "min_new_tokens": 8}
    many = {"num_beams": 3, "what": "sequences_scores", **lengths}
    return gap(_logits(s, ids, **many), _logits(s, ids, use_cache=False, **many))


def generate_looked_up(s: Subject) -> float:
    """Tokens that are guessed from the prompt, some of which are rejected, change nothing."""
    ids = _ids(s, 1, 12).repeat(1, 3)
    return gap(_logits(s, ids, prompt_lookup_num_tokens=3)[:, :2], _logits(s, ids)[:, :2])


def generate_again(s: Subject) -> float:
    """A prompt of one token is continued after another `generate` as without a cache."""
    ids = _ids(s, 1, 31)
    _logits(s, ids)
    got = _logits(s, ids[:, :1])[:, :1]
    return gap(got, _logits(s, ids[:, :1], use_cache=False)[:, :1])


def _ids(s: Subject, rows: int, length: int) -> Tensor:
    if s.model is None:
        raise NotCheckedError("has no generate")
    draw = torch.Generator().manual_seed(31)
    return torch.randint(3, s.model.config.vocab_size, (rows, length), generator=draw)


def _logits(
    s: Subject, ids: Tensor, valid: Tensor | None = None, what: str = "logits", **settings: Any
) -> Tensor:
    """Logits [b t v] of five greedy tokens, or scores of beams."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mask = torch.ones_like(ids) if valid is None else valid
        out = getattr(generate(s.model, ids, mask, **settings), what)
    return torch.stack(out, dim=1) if isinstance(out, tuple) else out


FORWARD = (
    right_padding,
    left_padding,
    left_padding_beside_a_longer_one,
    padding_inside,
    no_future,
    one_token,
    mates,
    mates_in_training,
    training_is_evaluation,
    gradients,
)
CACHE = (
    steps,
    steps_from_nothing,
    prompt_in_parts,
    steps_of_two_rows,
    right_padded_prompts,
    left_padded_prompts,
    left_padded_prompt_in_parts,
    beams_change_places,
    states_are_apart,
    other_calls_move_nothing,
)
GENERATE = (
    generate_left_padded,
    generate_of_two_rows,
    generate_uncached,
    generate_in_parts,
    generate_beams,
    generate_looked_up,
    generate_again,
)
LAWS = {law.__name__: law for law in (*FORWARD, *CACHE, *GENERATE)}
"""Laws of the page by their names."""
