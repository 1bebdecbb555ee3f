"""What padding changes in transformers itself: the figures of docs/pretrained.md, beside our 0 of test_padding.py.

`python tests/pretrained/padding_of_transformers.py [TYPE …]` prints each type where it is 0.001 or more: by what share
of the largest number an example differs from itself alone, beside longer ones with padding on a side or inside, and in
`generate` for a prompt beside a longer one, in parts, and with beams. Models get the mask, and decoders the positions
that `generate` makes.
"""

import inspect
import random
import sys

import torch
import transformers

sys.path[:0] = ["tests", "tests/parity", "tests/pretrained"]
# ruff: noqa: E402
from every_type import LENGTHS, RATE, model_of, processor_of, small_models, waves

from seqkit.pretrained.families import FAMILIES
from seqkit.testing.checks import DifferenceError, NotCheckedError
from seqkit.testing.generated import (
    generate_beams_as_uncached,
    generate_in_parts_as_at_once,
    generate_takes_left_padding,
)

PLACES = ("right", "left", "inside")
LAWS = (generate_takes_left_padding, generate_in_parts_as_at_once, generate_beams_as_uncached)


def columns(place, length, n):
    """Columns of n where the tokens of an example stand."""
    if place == "inside":
        return sorted(random.Random(length).sample(range(n), length))
    return [*range(length)] if place == "right" else [*range(n - length, n)]


def differences(model, place):
    """Shares by which rows of a padded batch differ from each alone, NaN where they are."""
    n = max(LENGTHS) + 4
    ids = torch.full((len(LENGTHS), n), getattr(model.config, "pad_token_id", None) or 3)
    mask = torch.zeros_like(ids)
    texts = [torch.randint(4, model.config.get_text_config().vocab_size - 1, (k,)) for k in LENGTHS]
    for row, text in enumerate(texts):
        kept = columns(place, len(text), n)
        ids[row, kept] = text
        mask[row, kept] = 1
    given = {"attention_mask": mask}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.tensor([[5, 7, 4]] * len(texts))
    elif model.can_generate() and "position_ids" in inspect.signature(model.forward).parameters:
        given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    together = model(ids, **given)[0]
    for row, text in enumerate(texts):
        alone = {key: x[:1] for key, x in given.items() if key == "decoder_input_ids"}
        right = model(text[None], **alone)[0][0]
        found = together[row] if alone else together[row, mask[row].bool()]
        yield float((found - right).abs().max() / right.abs().max())


def of_sounds(model):
    """As `differences`, of sounds that are padded on the right as their processor does."""
    processor = processor_of(model.config)
    together = processor(waves(), sampling_rate=RATE, padding=True, return_tensors="pt")
    hidden = model(**together)[0]
    for row, wave in enumerate(waves()):
        right = model(processor(wave, sampling_rate=RATE, return_tensors="pt").input_values)[0][0]
        yield float((hidden[row, : len(right)] - right).abs().max() / right.abs().max())


def measured(name, settings):
    """Shares of a model by column of the table; None: it is not asked."""
    model = model_of(name, settings)
    if model.main_input_name == "input_values":
        return [max(of_sounds(model)), *[None] * 5]
    if model.main_input_name != "input_ids" or hasattr(model.config, "vision_config"):
        return []
    try:
        shares = [max(differences(model, place)) for place in PLACES]
    except ValueError:  # it takes no text of that length
        return []
    ids = torch.randint(3, model.config.vocab_size, (2, 31))
    for law in LAWS if model.can_generate() and not model.config.is_encoder_decoder else ():
        try:
            law(model, ids[:, -24:] if hasattr(model.config, "n_positions") else ids)
            shares.append(0.0)
        except DifferenceError as error:
            shares.append(error.size)
        except (NotCheckedError, ValueError, IndexError):
            shares.append(None)
    return [*shares, *[None] * (6 - len(shares))]


def shown(share):
    if share is None:
        return ""
    return f"{share:.1g}" if not share < 1e-3 else "0"


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    print(
        "| type | right | left | inside | prompts | parts | beams |\n|---|---|---|---|---|---|---|"
    )
    for kind in sys.argv[1:] or FAMILIES:
        with torch.no_grad():
            shares = measured(*small_models()[kind][0])
        if any(share is not None and not share < 1e-3 for share in shares):
            print(f"| `{kind}` | {' | '.join(map(shown, shares))} |", flush=True)
        else:
            print(f"    {kind}: {', '.join(map(shown, shares)) or 'no padding'}", file=sys.stderr)
