"""`seqkit generate RUN`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.options import add_device, add_run, whole
from seqkit.errors import UsageError, one_line, printable

if TYPE_CHECKING:
    from seqkit.generation.beam_search import BeamSearch
    from seqkit.generation.sampling import Sampling
    from seqkit.runs.trained_model import TrainedModel

SAMPLING = {
    "temperature": (float, "0.8 by default; 0 always takes the likeliest token"),
    "top_k": (whole, "sample only among the k likeliest tokens"),
    "top_p": (float, "sample only among the likeliest tokens that together have this probability"),
    "min_p": (float, "leave out tokens below this share of the likeliest token's probability"),
    "repetition_penalty": (float, "above 1, tokens that have occurred become less likely"),
    "seed": (whole, "0 to 4294967295 (default 0); sample i uses seed + i"),
}
BEAMS = {
    "num_beams": (whole, "beam search of this width, in place of sampling"),
    "length_penalty": (float, "of beam search: 1 ranks texts by mean log-probability (default); more, longer ones"),
}
"""Options of `seqkit.generation.Sampling` and `BeamSearch`, with type and help."""


def strategy(args: Namespace) -> Sampling | BeamSearch:
    """The decoding strategy that a command's options name; the default is sampling with temperature 0.8.

    Raises ValueError if one is out of range, or two contradict each other.
    """
    from seqkit.generation.beam_search import BeamSearch
    from seqkit.generation.sampling import Sampling

    given = {name: value for name, value in vars(args).items() if value is not None}
    draw, search = ({name: given[name] for name in names if name in given} for names in (SAMPLING, BEAMS))
    if not search:
        return Sampling(**{"temperature": 0.8, **draw})
    if draw or args.samples > 1:
        wrong = next(iter(draw), "samples").replace("_", "-")
        raise UsageError(f"--num-beams is a beam search and samples nothing; leave out --{wrong}")
    return BeamSearch(**search)


def run(args: Namespace) -> int:
    """Print what a run generates; a single sampled text comes piece by piece."""
    for name in ("max_new_tokens", "samples"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(args, name)} is too few; give 1 or more")
    chosen = strategy(args)
    from seqkit.generation.any_tokens import needs_any_tokens
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run, args.device, args.dtype)
    is_source, any_tokens = trained.model.source_embedder is not None, needs_any_tokens(trained)
    if not args.prompt and (is_source or any_tokens):
        what = "generates one sequence from another; give the source" if is_source else "needs a beginning; give it"
        raise UsageError(f"this run {what}: --prompt TEXT or FILE")
    named = [pair for given in args.prompt or ["\n"] for pair in beginnings(trained, given)]
    named = [pair for pair in named for _ in range(args.samples)]
    for piece in (continued if any_tokens else printed)(trained, named, chosen, args.max_new_tokens, args.stop):
        print(printable(piece), end="", flush=True)
    return 0


def beginnings(trained: TrainedModel, given: str) -> Iterator[tuple[str, Any]]:
    """(name, raw example) of a prompt: a file that the run's tokenizer reads is read, all else is the text itself.

    To a tokenizer that reads files, what looks like a path is no text. Raises as `read_inputs`.
    """
    from seqkit.data.formats import TEXT, format_of, own_reader
    from seqkit.data.inputs import read_inputs, schema_of
    from seqkit.data.walk import exists_as
    from seqkit.generation.any_tokens import needs_any_tokens

    path, continues_text = Path(given), trained.model.source_embedder is None and not needs_any_tokens(trained)
    is_text_file = format_of(path) is TEXT and exists_as(path, Path.is_file)
    if continues_text and own_reader(trained.tokenizer) is None and not is_text_file:
        yield given, given
    else:
        schema = schema_of(trained.config)
        kind = None if continues_text or schema is None else schema.inputs[0].kind
        yield from read_inputs(given, trained.tokenizer, kind)


Named = list[tuple[str, Any]]


def continued(
    trained: TrainedModel, named: Named, chosen: Sampling | BeamSearch, length: int | None, stop: list[str]
) -> Iterator[str]:
    """Yields a line for each (name, raw beginning) of tokens that are no text: what the tokenizer decodes, whole."""
    from seqkit.generation.any_tokens import continue_examples
    from seqkit.generation.prompts_to_text import MAX_NEW_TOKENS
    from seqkit.generation.sampling import Sampling

    if not isinstance(chosen, Sampling) or stop:
        raise UsageError("--num-beams and --stop are for text; leave them out for these tokens")
    found = continue_examples(trained, [raw for _, raw in named], length or MAX_NEW_TOKENS, sampling=chosen)
    for (name, _), example in zip(named, found):
        text = example if isinstance(example, str) else repr(example)
        yield f"{text}\n" if len(named) == 1 else f"{one_line(name)}\t{text}\n"


def printed(
    trained: TrainedModel, named: Named, chosen: Sampling | BeamSearch, length: int | None, stop: list[str]
) -> Iterator[str]:
    """Yields pieces of text for (name, raw prompt or source) pairs; a continuation follows its prompt."""
    from seqkit.generation.prompts_to_text import generate_texts, stream_text
    from seqkit.generation.sampling import Sampling

    tokenizer: Any = trained.tokenizer
    continues = trained.model.source_embedder is None

    def shown(raw: Any) -> str:
        if not continues:
            return ""
        return raw if isinstance(raw, str) else str(tokenizer.decode(tokenizer.encode(raw).content))

    if len(named) == 1 and isinstance(chosen, Sampling):
        pieces = stream_text(trained, named[0][1], length, sampling=chosen, stop=stop)
        first = next(pieces, "")  # a prompt that cannot be read is refused here, before it is printed
        yield shown(named[0][1]) + first
        yield from pieces
        yield "\n"
        return
    texts = generate_texts(trained, [raw for _, raw in named], length, strategy=chosen, stop=stop)
    for i, ((name, raw), text) in enumerate(zip(named, texts), start=1):
        head = "" if len(named) == 1 else f"--- {i} of {len(named)} ---\n" if continues else f"{one_line(name)}\t"
        yield f"{head}{shown(raw)}{text}\n"


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add = parser.add_argument
    prompt = "text to continue, or text to start from, or a file with it; may be given more than once"
    add("--prompt", action="append", help=prompt)
    length = "most new tokens (default: 500, or the longest length in training)"
    add("--max-new-tokens", "--tokens", type=whole, help=length)
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    add("--samples", type=whole, default=1, metavar="N", help="number of texts per prompt (default 1)")
    for name, (kind, text) in (SAMPLING | BEAMS).items():
        add(f"--{name.replace('_', '-')}", type=kind, help=text)
    add_device(parser)
