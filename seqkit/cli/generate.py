"""`seqkit generate RUN`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.cli.options import add_device, add_run, whole
from seqkit.errors import UsageError, one_line, printable

if TYPE_CHECKING:
    from seqkit.generation.beam_search import BeamSearch
    from seqkit.generation.sampling import Sampling
    from seqkit.pretrained.generation_config import Published
    from seqkit.runs.trained_model import TrainedModel

SAMPLING: dict[str, tuple[Callable[[str], Any], str]] = {
    "temperature": (
        float,
        "0 always takes the likeliest token (default: 0.8, or as the model was published)",
    ),
    "top_k": (whole, "sample only among the k likeliest tokens"),
    "top_p": (float, "sample only among the likeliest tokens that together have this probability"),
    "min_p": (float, "leave out tokens below this share of the likeliest token's probability"),
    "repetition_penalty": (float, "above 1, tokens that have occurred become less likely"),
    "seed": (whole, "0 to 4294967295 (default 0); sample i uses seed + i"),
}
BEAMS: dict[str, tuple[Callable[[str], Any], str]] = {
    "num_beams": (whole, "beam search of this width, in place of sampling"),
    "length_penalty": (
        float,
        "of beam search: 1 ranks texts by mean log-probability (default); more, longer ones",
    ),
}
"""Options of `seqkit.generation.Sampling` and `BeamSearch`, with type and help."""


def strategy(args: Namespace, published: Published | None = None) -> Sampling | BeamSearch:
    """The decoding strategy that a command's options name; the default is sampling with temperature 0.8.

    published: settings that hold where the options do not say otherwise.
    Raises ValueError if one is out of range, or two contradict each other.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    for name in ("max_new_tokens", "samples"):
        if given.get(name, 1) < 1:
            raise UsageError(f"--{name.replace('_', '-')} is {given[name]}; give 1 or more")
    from seqkit.generation.beam_search import BeamSearch
    from seqkit.generation.sampling import Sampling

    draw = {name: given[name] for name in SAMPLING if name in given}
    search = {name: given[name] for name in BEAMS if name in given}
    sampling = {} if published is None else published.sampling
    beams = {} if published is None else published.beams
    if not search and (draw or args.samples > 1 or not beams):
        return Sampling(**{"temperature": 0.8, **sampling, **draw})
    if draw or args.samples > 1:
        wrong = next(iter(draw), "samples").replace("_", "-")
        raise UsageError(f"--num-beams is a beam search and samples nothing; leave out --{wrong}")
    return BeamSearch(**{**beams, **search})


def run(args: Namespace) -> int:
    """Print what a run generates; a single sampled text comes piece by piece."""
    strategy(args)  # refuses options before a model is loaded
    from seqkit.runs.trained_model import load_one

    trained = load_one(args.run, args.device, args.dtype)
    chosen = strategy(args, trained.published)
    if not args.prompt and not _continues_text(trained):
        raise UsageError("this run needs a beginning or a source; give it: --prompt TEXT or FILE")
    named = [pair for given in args.prompt or ["\n"] for pair in beginnings(trained, given)]
    named = [pair for pair in named for _ in range(args.samples)]
    for piece in printed(trained, named, chosen, args.max_new_tokens, args.stop):
        print(printable(piece), end="", flush=True)
    return 0


def _continues_text(trained: TrainedModel) -> bool:
    """Whether a run continues its prompt, token after token of one sequence of ids, as a language model does."""
    from seqkit.generation.any_tokens import needs_any_tokens

    return trained.model.source_embedder is None and not needs_any_tokens(trained)


def beginnings(trained: TrainedModel, given: str) -> Iterator[tuple[str, Any]]:
    """(name, raw example) of a prompt: a file that the run's tokenizer reads is read, all else is the text itself.

    To a tokenizer that reads files, what looks like a path is no text. Raises as `read_inputs`.
    """
    from seqkit.data.formats import TEXT, format_of, own_reader
    from seqkit.data.inputs import read_inputs, schema_of
    from seqkit.data.walk import exists_as

    path = Path(given)
    continues_text = _continues_text(trained)
    is_text_file = format_of(path) is TEXT and exists_as(path, Path.is_file)
    if continues_text and own_reader(trained.tokenizer) is None and not is_text_file:
        yield given, given
    else:
        schema = schema_of(trained.config)
        kind = None if continues_text or schema is None else schema.inputs[0].kind
        yield from read_inputs(given, trained.tokenizer, kind)


def printed(
    trained: TrainedModel,
    named: list[tuple[str, Any]],
    chosen: Sampling | BeamSearch,
    length: int | None,
    stop: list[str],
) -> Iterator[str]:
    """Yields pieces of text for (name, raw prompt or source) pairs; a text that is continued follows its prompt.

    length: most new tokens; None: as many as the run's own. Tokens that are no text are decoded whole.
    """
    from seqkit.generation.any_tokens import continue_examples, needs_any_tokens
    from seqkit.generation.prompts_to_text import MAX_NEW_TOKENS, generate_texts, stream_text
    from seqkit.generation.sampling import Sampling

    tokenizer: Any = trained.tokenizer
    raws = [raw for _, raw in named]
    is_one = len(named) == 1
    follows = _continues_text(trained)
    prompts = [""] * len(raws)
    if follows:
        for i, raw in enumerate(raws):
            if isinstance(raw, str):
                prompts[i] = raw
            else:
                prompts[i] = str(tokenizer.decode(tokenizer.encode(raw).content))
    if needs_any_tokens(trained):
        if not isinstance(chosen, Sampling) or stop:
            raise UsageError("--num-beams and --stop are for text; leave them out for these tokens")
        found = continue_examples(trained, raws, length or MAX_NEW_TOKENS, sampling=chosen)
        texts = [example if isinstance(example, str) else repr(example) for example in found]
    elif is_one and isinstance(chosen, Sampling):
        pieces = stream_text(trained, raws[0], length, sampling=chosen, stop=stop)
        # a prompt that cannot be read is refused here, before it is printed
        first = next(pieces, "")
        yield prompts[0] + first
        yield from pieces
        texts = [""]
        prompts = [""]
    else:
        texts = generate_texts(trained, raws, length, strategy=chosen, stop=stop)
    for i, ((name, _), prompt, text) in enumerate(zip(named, prompts, texts), start=1):
        if is_one:
            head = ""
        elif follows:
            head = f"--- {i} of {len(named)} ---\n"
        else:
            head = f"{one_line(name)}\t"
        yield f"{head}{prompt}{text}\n"


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add_run(parser)
    add = parser.add_argument
    prompt = (
        "text to continue, or text to start from, or a file with it; may be given more than once"
    )
    add("--prompt", action="append", help=prompt)
    length = "most new tokens (default: 500, or the longest length in training)"
    add("--max-new-tokens", "--tokens", type=whole, help=length)
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    add(
        "--samples",
        type=whole,
        default=1,
        metavar="N",
        help="number of texts per prompt (default 1)",
    )
    for name, (kind, text) in (SAMPLING | BEAMS).items():
        add(f"--{name.replace('_', '-')}", type=kind, help=text)
    add_device(parser)
