"""`seqkit generate RUN`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.options import add_device, add_run, whole
from seqkit.errors import DataError, UsageError, one_line, printable

if TYPE_CHECKING:
    from seqkit.generation.beam_search import BeamSearch
    from seqkit.generation.sampling import Sampling
    from seqkit.runs.trained_model import TrainedModel

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
BEAM_OPTIONS = ("num_beams", "length_penalty")


def strategy(options: dict[str, Any]) -> Sampling | BeamSearch:
    """The decoding strategy that a command's options name; the default is sampling with temperature 0.8.

    options: value by name; None: not given. Raises ValueError if one is out of range, or two contradict each other.
    """
    from seqkit.generation.beam_search import BeamSearch
    from seqkit.generation.sampling import Sampling

    for name in ("max_new_tokens", "samples"):
        if options[name] is not None and options[name] < 1:
            raise ValueError(
                f"--{name.replace('_', '-')} {options[name]} counts what is to be generated; give 1 or more"
            )
    draw = {name: options[name] for name in SAMPLING_OPTIONS if options[name] is not None}
    search = {name: options[name] for name in BEAM_OPTIONS if options[name] is not None}
    if "num_beams" not in search:
        if search:
            raise ValueError("--length-penalty weighs what a beam search finds; give --num-beams too, or leave it out")
        return Sampling(**{"temperature": 0.8, **draw})
    if draw or options["samples"] is not None:
        wrong = next(iter(draw), "samples").replace("_", "-")
        raise ValueError(f"--num-beams is a beam search and samples nothing; leave out --{wrong}")
    return BeamSearch(**search)


def run(args: Namespace) -> int:
    """Print what a run generates, piece by piece."""
    from seqkit.generation.any_tokens import needs_any_tokens
    from seqkit.runs.trained_model import load_one

    strategy(vars(args))  # refuses what contradicts itself before anything is loaded
    trained = load_one(args.run, args.device, args.dtype)
    is_source, any_tokens = trained.model.source_embedder is not None, needs_any_tokens(trained)
    if not args.prompt and (is_source or any_tokens):
        what = "generates one sequence from another; give the source" if is_source else "needs a beginning; give it"
        raise UsageError(f"this run {what}: --prompt TEXT or FILE")
    named = [pair for given in args.prompt or [] for pair in beginnings(trained, given)]
    if not named:
        text = _first_text(trained)
        named = [(text, text)]
    if any_tokens:
        for line in continued(trained, named, vars(args)):
            print(printable(line), flush=True)
        return 0
    for piece in printed(trained, named, vars(args)):
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


def continued(trained: TrainedModel, named: Sequence[tuple[str, Any]], options: dict[str, Any]) -> Iterator[str]:
    """Yields a line to print for each sample of each (name, raw beginning): what the tokenizer decodes, whole."""
    from seqkit.generation.any_tokens import continue_examples
    from seqkit.generation.prompts_to_text import MAX_NEW_TOKENS
    from seqkit.generation.sampling import Sampling

    chosen = strategy(options)
    if not isinstance(chosen, Sampling) or options["stop"]:
        raise UsageError("--num-beams and --stop are for text; leave them out for these tokens")
    number = MAX_NEW_TOKENS if options["max_new_tokens"] is None else options["max_new_tokens"]
    named = [pair for pair in named for _ in range(options["samples"] or 1)]
    found = continue_examples(trained, [raw for _, raw in named], number, sampling=chosen)
    for (name, _), example in zip(named, found):
        text = example if isinstance(example, str) else repr(example)
        yield text if len(named) == 1 else f"{one_line(name)}\t{text}"


def _first_text(trained: TrainedModel) -> str:
    """The prompt if none is given: a line break or, if the tokenizer does not know it, its first token's text.

    Raises UsageError if the tokenizer encodes no text.
    """
    import torch

    from seqkit.generation.prompts_to_text import INCOMPLETE

    tokenizer: Any = trained.tokenizer
    try:
        tokenizer.encode("\n")
    except DataError:
        if trained.model.spec.ids and hasattr(tokenizer, "decode"):
            texts = [str(tokenizer.decode(torch.tensor([i]))) for i in range(min(2, trained.model.spec.vocab_size))]
            return next((text for text in texts if text != INCOMPLETE), texts[0])
    except Exception as error:  # the user's own code, whose raw examples are no texts
        raise UsageError("this run needs a beginning; give it: --prompt TEXT or FILE") from error
    return "\n"


def printed(trained: TrainedModel, named: Sequence[tuple[str, Any]], options: dict[str, Any]) -> Iterator[str]:
    """Yields pieces of text to print, for (name, raw prompt or source) pairs; a single sampled sequence as it comes.

    A continuation follows its prompt; what is generated from a source is printed alone, or after the source's name.
    """
    from seqkit.generation.prompts_to_text import generate_texts, stream_text
    from seqkit.generation.sampling import Sampling

    chosen, stop = strategy(options), options["stop"]
    continues = trained.model.source_embedder is None
    samples = 1 if options["samples"] is None else options["samples"]
    named = [pair for pair in named for _ in range(samples)]
    if len(named) == 1 and isinstance(chosen, Sampling):
        pieces = stream_text(trained, named[0][1], options["max_new_tokens"], sampling=chosen, stop=stop)
        first = next(pieces, "")  # a prompt that cannot be read is refused here, before it is printed
        yield _shown(trained, named[0][1]) + first if continues else first
        yield from pieces
        yield "\n"
        return
    texts = generate_texts(trained, [raw for _, raw in named], options["max_new_tokens"], strategy=chosen, stop=stop)
    for i, ((name, raw), text) in enumerate(zip(named, texts), start=1):
        if not continues:
            yield f"{text}\n" if len(named) == 1 else f"{one_line(name)}\t{text}\n"
        else:
            whole = f"{_shown(trained, raw)}{text}\n"
            yield whole if len(named) == 1 else f"--- {i} of {len(named)} ---\n{whole}"


def _shown(trained: TrainedModel, raw: Any) -> str:
    """A prompt as text: itself, or what the tokenizer decodes of its ids."""
    tokenizer: Any = trained.tokenizer
    return raw if isinstance(raw, str) else str(tokenizer.decode(tokenizer.encode(raw).content))


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add = parser.add_argument
    text = "text to continue, or text to start from, or a file with it; may be given more than once"
    add("--prompt", action="append", help=text)
    text = "most new tokens (default: 500, or the longest length in training)"
    add("--max-new-tokens", "--tokens", type=whole, help=text)
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    add("--samples", type=whole, metavar="N", help="number of texts per prompt (default 1)")
    add("--temperature", type=float, help="0.8 by default; 0 always takes the likeliest token")
    add("--top-k", type=whole, help="sample only among the k likeliest tokens")
    add("--top-p", type=float, help="sample only among the likeliest tokens that together have this probability")
    add("--min-p", type=float, help="leave out tokens below this share of the likeliest token's probability")
    add("--repetition-penalty", type=float, help="above 1, tokens that have occurred become less likely")
    add("--seed", type=whole, help="0 to 4294967295 (default 0); sample i uses seed + i")
    add("--num-beams", type=whole, help="beam search of this width, in place of sampling")
    text = "for beam search: 1 ranks texts by mean log-probability (default); more prefers longer ones, 0 short ones"
    add("--length-penalty", type=float, help=text)
    add_device(parser)
