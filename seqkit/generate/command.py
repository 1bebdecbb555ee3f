"""What `seqkit generate` prints, from its options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seqkit.generate.sampling import Sampling
from seqkit.generate.search import BeamSearch
from seqkit.generate.text import stream_text, write_texts

if TYPE_CHECKING:
    from seqkit.run import Loaded

DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
SEARCHING = ("num_beams", "length_penalty")


def strategy(options: dict[str, Any]) -> Sampling | BeamSearch:
    """From the options that the user gave, the others None. Temperature is 0.8 where nobody says.

    Raises ValueError where one is out of range, or they contradict each other.
    """
    for name in ("max_new_tokens", "samples"):
        if options[name] is not None and options[name] < 1:
            raise ValueError(f"--{name.replace('_', '-')} {options[name]} counts what is to be written; give 1 or more")
    draw = {name: options[name] for name in DRAWING if options[name] is not None}
    search = {name: options[name] for name in SEARCHING if options[name] is not None}
    if "num_beams" not in search:
        if search:
            raise ValueError("--length-penalty weighs what a beam search finds; give --num-beams too, or leave it out")
        return Sampling(**{"temperature": 0.8, **draw})
    if draw or options["samples"] is not None:
        wrong = next(iter(draw), "samples").replace("_", "-")
        raise ValueError(f"--num-beams searches for the likeliest text and draws nothing; leave out --{wrong}")
    return BeamSearch(**search)


def printed(loaded: Loaded, named: Sequence[tuple[str, Any]], options: dict[str, Any]) -> Iterator[str]:
    """Pieces to be printed one after another, for (name, raw prompt or source): as they come, if it is one to be drawn.

    A continued text follows its prompt; what is written from a source stands alone, or behind the source's name.
    """
    chosen, stop = strategy(options), options["stop"]
    continues = loaded.model.source_embedder is None
    samples = 1 if options["samples"] is None else options["samples"]
    named = [pair for pair in named for _ in range(samples)]
    if len(named) == 1 and isinstance(chosen, Sampling):
        pieces = stream_text(loaded, named[0][1], options["max_new_tokens"], sampling=chosen, stop=stop)
        first = next(pieces, "")  # a prompt that cannot be read is refused here, before it is printed
        yield named[0][1] + first if continues else first
        yield from pieces
        yield "\n"
        return
    texts = write_texts(loaded, [raw for _, raw in named], options["max_new_tokens"], strategy=chosen, stop=stop)
    for i, ((name, raw), text) in enumerate(zip(named, texts), start=1):
        if not continues:
            yield f"{text}\n" if len(named) == 1 else f"{name}\t{text}\n"
        else:
            yield f"{raw}{text}\n" if len(named) == 1 else f"--- {i} of {len(named)} ---\n{raw}{text}\n"
