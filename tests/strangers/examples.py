"""Examples of faults: at most twelve lines without seqkit, which print the size of the fault."""

import contextlib
import inspect
import io
from collections.abc import Callable

import torch
from strangers.families import Family, build_lines
from strangers.laws import Subject
from strangers.others import Other, other_lines

from seqkit.testing.adapters import _cache_name, _new_cache

MOST_LINES = 12
PRINT = "print(float((got - right).abs().max() / right.abs().max()))"


def example_of_other(other: Other, law: str, dtype: str) -> str:
    """Lines that show that a module of another library breaks a law. Raises KeyError if there are none for that law."""
    end = f"generator=torch.Generator().manual_seed({{}}), dtype=torch.float64).to(torch.{dtype})"
    drawn = "x = torch.randn({}, " + end
    ends: dict[str, list[str]] = {
        "left_padding": [
            drawn.format("1, 14, 32", 1),
            "valid = torch.arange(14)[None] >= 5  # the first five are padding",
            "got, right = call(x, valid)[:, 5:], call(x[:, 5:], valid[:, 5:])",
        ],
        "left_padding_beside_a_longer_one": [
            drawn.format("2, 14, 32", 2),
            "valid = torch.ones(2, 14, dtype=torch.bool); valid[0, :5] = False",
            "got, right = call(x, valid)[:1, 5:], call(x[:1, 5:], valid[:1, 5:])",
        ],
        "padding_inside": [
            drawn.format("1, 20, 32", 15),
            "valid = torch.ones(1, 20, dtype=torch.bool); valid[:, 6:10] = False",
            "right = call(x, valid)[valid]",
            drawn.format("1, 4, 32", 16).replace("x =", "x[:, 6:10] ="),
            "got = call(x, valid)[valid]  # other vectors under the mask",
        ],
    }
    lines = [line for line in other_lines(other, dtype) if not line.startswith("step")]
    return "\n".join([*lines, *ends[law], PRINT])


class Words:
    """The words of a family's calls: its cache, masks and positions."""

    def __init__(self, subject: Subject):
        names = inspect.signature(subject.module.forward).parameters
        self.cache = _cache_name(subject.module)
        self.is_made = _new_cache(subject.module) is not None
        self.has_positions = "position_ids" in names
        self.has_mask = "attention_mask" in names
        self.is_all_state = self.cache == "cache_params"

    def new(self, name: str = "past") -> str:
        """Statement that makes a cache, as `generate` does; empty: the model makes it."""
        return f"{name} = DynamicCache(config=model.config); " if self.is_made else ""

    def first(self, ids: str, mask: str = "", name: str = "past") -> str:
        """A call that begins a cache; `name` is the cache after it, and `out` what the call gives."""
        given = f", {self.cache}={name}" if self.is_made else ""
        after = "" if self.is_made else f"; {name} = out.{self.cache}"
        return f"{self.new(name)}out = model({ids}{given}, use_cache=True{mask}){after}"

    def then(self, ids: str, mask: str = "", name: str = "past") -> str:
        """An expression of the hidden states of a call that goes on."""
        return f"model({ids}, {self.cache}={name}, use_cache=True{mask}).last_hidden_state"

    def masks(self, start: int, stop: int) -> str:
        """Arguments of the columns from `start` to `stop`, by the `mask` of all."""
        words = ""
        if self.has_mask:
            begin = start if self.is_all_state else 0
            words += f", attention_mask=mask[:, {begin}:{stop}]"
        if self.has_positions:
            words += f", position_ids=(mask.cumsum(1) - 1).clamp(min=0)[:, {start}:{stop}]"
        return words

    def at(self, start: int, stop: int) -> str:
        """Positions of columns without padding."""
        if self.has_positions:
            return f", position_ids=torch.arange({start}, {stop})[None]"
        return ""


def ids(rows: int, length: int, seed: int, name: str = "ids") -> str:
    """A line that draws ids."""
    return f"{name} = torch.randint(3, 37, ({rows}, {length}), generator=torch.Generator().manual_seed({seed}))"


def example(family: Family, law: str, subject: Subject, size: str, dtype: str) -> str:
    """Lines that show that a family of transformers breaks a law. Raises KeyError if there are none for that law."""
    if law.startswith("generate"):
        head, ends = True, _of_generate(law)
    else:
        head, ends = False, CASES[law](Words(subject))
    return "\n".join([*build_lines(family, size, dtype, head=head), *ends, PRINT])


def _left_padding(w: Words) -> list[str]:
    return [
        ids(1, 14, 1),
        "mask = (torch.arange(14)[None] >= 5).long()",
        f"got = model(ids{w.masks(0, 14)}).last_hidden_state[:, 5:]",
        "right = model(ids[:, 5:]).last_hidden_state",
    ]


def _left_padding_beside(w: Words) -> list[str]:
    return [
        ids(2, 14, 2),
        "mask = torch.ones_like(ids); mask[0, :5] = 0",
        f"got = model(ids{w.masks(0, 14)}).last_hidden_state[:1, 5:]",
        "right = model(ids[:1, 5:]).last_hidden_state",
    ]


def _padding_inside(w: Words) -> list[str]:
    return [
        ids(1, 20, 15),
        "mask = torch.ones_like(ids); mask[:, 6:10] = 0",
        f"right = model(ids{w.masks(0, 20)}).last_hidden_state[mask.bool()]",
        ids(1, 4, 16, name="ids[:, 6:10]"),
        f"got = model(ids{w.masks(0, 20)}).last_hidden_state[mask.bool()]  # other ids under the mask",
    ]


def _prompt_in_parts(w: Words) -> list[str]:
    return [
        ids(1, 40, 7),
        w.first("ids[:, :21]"),
        "first = out.last_hidden_state",
        f"got = torch.cat([first, {w.then('ids[:, 21:]', w.at(21, 40))}], 1)",
        "right = model(ids).last_hidden_state",
    ]


def _right_padded_prompts(w: Words) -> list[str]:
    return [
        ids(2, 10, 8),
        "mask = torch.ones_like(ids); mask[1, 6:9] = 0  # prompts of 9 and 6 tokens, then a token each",
        w.first("ids[:, :9]", w.masks(0, 9)),
        f"got = {w.then('ids[:, 9:]', w.masks(9, 10))}[1, -1]",
        "right = model(torch.cat([ids[1:, :6], ids[1:, 9:]], 1)).last_hidden_state[0, -1]",
    ]


def _left_padded_prompts(w: Words) -> list[str]:
    return [
        ids(2, 10, 8),
        "mask = torch.ones_like(ids); mask[1, :3] = 0  # prompts of 9 and 6 tokens, then a token each",
        w.first("ids[:, :9]", w.masks(0, 9)),
        f"got = {w.then('ids[:, 9:]', w.masks(9, 10))}[1, -1]",
        "right = model(ids[1:, 3:]).last_hidden_state[0, -1]",
    ]


def _left_padded_in_parts(w: Words) -> list[str]:
    return [
        ids(1, 35, 11),
        "mask = (torch.arange(35)[None] >= 15).long()",
        w.first("ids[:, :12]", w.masks(0, 12)),
        f"got = {w.then('ids[:, 12:]', w.masks(12, 35))}[:, 3:]",
        "right = model(ids[:, 15:]).last_hidden_state",
    ]


def _beams(w: Words) -> list[str]:
    return [
        ids(2, 13, 12),
        w.first("ids[:, :12]"),
        "past.reorder_cache(torch.tensor([1, 0]))",
        f"got = {w.then('ids[:, 12:]', w.at(12, 13))}[:, -1]",
        "right = model(torch.cat([ids[[1, 0], :12], ids[:, 12:]], 1)).last_hidden_state[:, -1]",
    ]


def _apart(w: Words) -> list[str]:
    return [
        f"{ids(1, 12, 13)}; {ids(1, 12, 14, name='others')}",
        w.first("ids[:, :9]", name="one"),
        w.first("others[:, :9]", name="two"),
        f"got = [{w.then('ids[:, 9:10]', w.at(9, 10), name='one')}]; "
        f"{w.then('others[:, 9:10]', w.at(9, 10), name='two')}",
        f"got = torch.cat([*got, {w.then('ids[:, 10:11]', w.at(10, 11), name='one')}], 1)",
        "right = model(ids).last_hidden_state[:, 9:11]",
    ]


def _other_calls(w: Words) -> list[str]:
    return [
        f"{ids(1, 12, 13)}; {ids(1, 5, 22, name='others')}",
        w.first("ids[:, :11]"),
        w.first("others", name="other"),
        f"got = {w.then('ids[:, 11:]', w.at(11, 12))}",
        "right = model(ids).last_hidden_state[:, 11:]",
    ]


CASES: dict[str, Callable[[Words], list[str]]] = {
    "left_padding": _left_padding,
    "left_padding_beside_a_longer_one": _left_padding_beside,
    "padding_inside": _padding_inside,
    "prompt_in_parts": _prompt_in_parts,
    "right_padded_prompts": _right_padded_prompts,
    "left_padded_prompts": _left_padded_prompts,
    "left_padded_prompt_in_parts": _left_padded_in_parts,
    "beams_change_places": _beams,
    "states_are_apart": _apart,
    "other_calls_move_nothing": _other_calls,
}
"""Lines of each law of the forward pass and the cache."""


def _of_generate(law: str) -> list[str]:
    """Lines of a law of `generate`."""
    five = "max_new_tokens=5, min_new_tokens=5, return_dict_in_generate=True"
    mask = "{'attention_mask': torch.ones_like(ids)} | more"
    greedy = f"do_sample=False, output_logits=True, {five}, **({mask})"
    run = f"run = lambda ids, **more: torch.stack(model.generate(ids, {greedy}).logits, 1)"
    eight = five.replace("=5", "=8")
    scored = f"num_beams=3, output_scores=True, {eight}, **({mask})"
    beams = f"run = lambda **more: model.generate(ids, {scored}).sequences_scores"
    ends = {
        "generate_left_padded": [
            ids(2, 31, 31),
            "mask = torch.ones_like(ids); mask[0, :9] = 0",
            run,
            "got, right = run(ids, attention_mask=mask)[:1, :2], run(ids[:1, 9:])[:, :2]",
        ],
        "generate_of_two_rows": [
            ids(2, 31, 31),
            run,
            "got, right = run(ids)[:, :2], torch.cat([run(ids[:1]), run(ids[1:])])[:, :2]",
        ],
        "generate_uncached": [
            ids(1, 31, 31),
            run,
            "got, right = run(ids, use_cache=False)[:, :2], run(ids)[:, :2]",
        ],
        "generate_in_parts": [
            ids(1, 31, 31),
            run,
            "got, right = run(ids, prefill_chunk_size=8)[:, :1], run(ids)[:, :1]",
        ],
        "generate_beams": [ids(2, 31, 31), beams, "got, right = run(), run(use_cache=False)"],
        "generate_again": [
            ids(1, 31, 31),
            run,
            "run(ids); got = run(ids[:, :1])[:, :1]  # a prompt of one token after another one",
            "right = run(ids[:, :1], use_cache=False)[:, :1]",
        ],
    }
    return ends[law]


def printed(code: str) -> float:
    """The number that an example prints."""
    said = io.StringIO()
    before = torch.is_grad_enabled()
    try:
        with contextlib.redirect_stdout(said):
            exec(code, {})
    finally:
        torch.set_grad_enabled(before)
    return float(said.getvalue().split()[-1])
