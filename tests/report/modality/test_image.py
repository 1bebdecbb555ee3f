"""Images in pictures: pixels are the image's own, and patches are tinted by the attention that they receive."""

import numpy as np
import pytest
import torch

from seqkit.report.modality.base import FLAME, MAX_TINT
from seqkit.report.modality.image import ImageRenderer
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.resize import Resize


def test_the_image_is_the_one_that_was_cut():
    image = torch.rand(1, 14, 21)
    tokenizer = Patches(7)
    shown = ImageRenderer(tokenizer).picture(image, tokenizer.encode(image)).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, image[0], atol=1e-6)


def test_a_patch_is_named_by_row_and_column():
    image = torch.zeros(1, 2, 4)
    assert ImageRenderer(Patches(2)).token_names(image, Patches(2).encode(image)) == ["0,0", "0,1"]


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_tinted_by_the_attention_that_its_patches_receive(layers, channels, attention_to):
    image = torch.rand(channels, 4, 6, generator=torch.Generator().manual_seed(0))
    patches = Patches(2, channels=channels)
    summary = attention_to(6, hot=4, layers=layers)
    figure = ImageRenderer(patches).overlay(image, patches.encode(image), summary)
    shown = {ax.get_title(): ax.images[0].get_array() for ax in figure.axes if ax.images}
    names = {f"layer {i} · head {j}" for i in range(layers) for j in range(3)}
    assert set(shown) == {"the image", "all layers (rollout)"} | names
    grey = image.mean(dim=0).numpy()
    for title in sorted(names):  # token 4 is row 1, column 1: pixels 2 to 3 by 2 to 3
        for y, x, token in ((2, 2, 4), (3, 3, 4), (0, 5, 2), (3, 1, 3)):
            share = MAX_TINT * summary.by_head[0, 0, token] / 2
            expected = grey[y, x] * (1 - share) + np.array(FLAME) * share
            np.testing.assert_allclose(shown[title][y, x], expected, atol=1e-6)


@pytest.mark.parametrize("positions", ["grid", "index"])
def test_learned_tokens_are_no_pixels(positions, attention_to):
    """They have names of their own; the attention that they receive is drawn nowhere, and moves no other."""
    image = torch.rand(1, 4, 6, generator=torch.Generator().manual_seed(0))
    plain = Patches(2, resize=(4, 6))
    patches = Patches(2, resize=(4, 6), num_prefix_tokens=2, positions=positions)
    tokens, renderer = patches.encode(image), ImageRenderer(patches)
    assert renderer.token_names(image, tokens) == ["+0", "+1", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]
    received = np.arange(8.0)
    np.testing.assert_array_equal(renderer.on_a_grid(tokens, received), [[2, 3, 4], [5, 6, 7]])
    summary = attention_to(8, hot=6)
    right = attention_to(6, hot=4)
    right = type(right)(summary.weights[..., 2:], summary.rollout[:, 2:])
    shown = [ax.images[0].get_array() for ax in renderer.overlay(image, tokens, summary).axes if ax.images]
    alone = ImageRenderer(plain).overlay(image, plain.encode(image), right).axes
    for got, expected in zip(shown, [ax.images[0].get_array() for ax in alone if ax.images], strict=True):
        np.testing.assert_allclose(got, expected)


def test_what_a_crop_cuts_is_not_drawn():
    tokenizer = Patches(2, resize=Resize((8, 10), crop=(4, 6)))
    image = torch.rand(1, 8, 10)
    shown = ImageRenderer(tokenizer).picture(image, tokenizer.encode(image)).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, image[0, 2:6, 2:8], atol=1e-6)
