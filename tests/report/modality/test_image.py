"""Images in pictures: pixels are the image's own, and patches are coloured by the attention that they receive."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from seqkit.report.modality.image import ImageRenderer
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.resize import Resize


def drawn(tokenizer, image, received=None):
    """Arrays of the image, and of the colours over it."""
    axes = Figure().subplots()
    ImageRenderer(tokenizer).draw(axes, image, tokenizer.encode(image), received)
    return [one.get_array() for one in axes.images]


def test_the_image_is_the_one_that_was_cut():
    image = torch.rand(1, 14, 21)
    np.testing.assert_allclose(drawn(Patches(7), image)[0], image[0], atol=1e-6)
    cropped = Patches(2, resize=Resize((8, 10), crop=(4, 6)))
    image = torch.rand(1, 8, 10)
    np.testing.assert_allclose(drawn(cropped, image)[0], image[0, 2:6, 2:8], atol=1e-6)


def test_a_patch_is_named_by_row_and_column():
    image = torch.zeros(1, 2, 4)
    assert ImageRenderer(Patches(2)).token_names(image, Patches(2).encode(image)) == ["0,0", "0,1"]


@pytest.mark.parametrize("channels", [1, 3])
def test_patches_have_the_colour_of_the_attention_that_they_receive(channels, attention_to):
    image = torch.rand(channels, 4, 6, generator=torch.Generator().manual_seed(0))
    grey, colours = drawn(Patches(2, channels=channels), image, attention_to(6, hot=4))
    np.testing.assert_allclose(grey, image.mean(dim=0), atol=1e-6)
    expected = np.full((4, 6), 6 / 7)
    expected[2:, 2:4] = 12 / 7  # token 4 is row 1, column 1: pixels 2 to 3 by 2 to 3
    np.testing.assert_allclose(colours, expected)


@pytest.mark.parametrize("positions", ["grid", "index"])
def test_learned_tokens_are_no_pixels(positions):
    """They have names of their own; the attention that they receive is drawn nowhere, and moves no other."""
    image = torch.rand(1, 4, 6, generator=torch.Generator().manual_seed(0))
    patches = Patches(2, resize=(4, 6), num_prefix_tokens=2, positions=positions)
    names = ImageRenderer(patches).token_names(image, patches.encode(image))
    assert names == ["+0", "+1", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]
    _, colours = drawn(patches, image, np.arange(8.0))
    np.testing.assert_array_equal(colours[::2, ::2], [[2, 3, 4], [5, 6, 7]])
