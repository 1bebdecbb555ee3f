"""Patches: timm's patch embedding, decoded exactly, learned tokens before them, refused where they do not tile."""

import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from PIL import Image
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.interfaces import Tokens
from seqkit.testing import check_tokenizer
from seqkit.tokenizers import Patches
from seqkit.tokenizers.resize import Resize


def test_patches_through_a_linear_equal_timms_patch_embedding():
    from timm.layers import PatchEmbed

    torch.manual_seed(0)
    image = torch.rand(3, 22, 35)
    embed = PatchEmbed(img_size=(22, 35), patch_size=(11, 7), in_chans=3, embed_dim=13)
    linear = torch.nn.Linear(3 * 11 * 7, 13)
    with torch.no_grad():
        linear.weight.copy_(rearrange(embed.proj.weight, "d c p q -> d (c p q)"))
        linear.bias.copy_(embed.proj.bias)
    tokens = Patches((11, 7), channels=3).encode(image)
    assert_close(linear(tokens.content), embed((image[None] - 0.5) / 0.5)[0])


def test_positions_are_row_and_column_of_the_patch_in_the_content():
    image = torch.rand(2, 6, 15)
    tokens = Patches((2, 3), channels=2, mean=0, std=1).encode(image)
    assert len(tokens) == 15
    for content, (row, column) in zip(tokens.content, tokens.positions.int().tolist()):
        patch = image[:, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
        assert torch.equal(content, patch.flatten())


@pytest.mark.parametrize("size", [(5, 7), (15, 7), (25, 49)])
def test_decode_gives_the_image_whatever_its_size_and_the_order_of_patches(size):
    tokenizer = Patches((5, 7), channels=3, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    image = torch.rand(3, *size)
    tokens = tokenizer.encode(image)
    tokenizer.spec.check(tokens)
    order = torch.randperm(len(tokens))
    assert_close(tokenizer.decode(Tokens(tokens.content[order], tokens.positions[order])), image)


def test_decode_is_exact_where_pixels_are_not_scaled():
    tokenizer = Patches(3, mean=0, std=1)
    image = torch.rand(1, 6, 9)
    assert torch.equal(tokenizer.decode(tokenizer.encode(image)), image)


def test_all_forms_of_one_image_give_the_same_tokens():
    pixels = np.random.default_rng(0).integers(0, 256, (6, 10, 3), np.uint8)
    tokenizer = Patches(2, channels=3)
    chw = rearrange(torch.from_numpy(pixels), "h w c -> c h w")
    forms = [
        chw,
        chw.float() / 255,
        chw.double() / 255,
        pixels,
        pixels / 255,
        Image.fromarray(pixels),
    ]
    first = tokenizer.encode(forms[0])
    for form in forms[1:]:
        assert_close(tokenizer.encode(form).content, first.content)
    grey = [
        pixels[..., 0],
        torch.from_numpy(pixels[..., 0].copy()),
        Image.fromarray(pixels[..., 0]),
        pixels[..., :1],
    ]
    for form in grey:
        assert_close(Patches(2).encode(form).content, Patches(2).encode(chw[:1]).content)


def test_resize_keeps_constant_regions_and_gives_every_image_one_size():
    tokenizer = Patches(4, resize=(8, 12))
    tokens = tokenizer.encode(torch.full((1, 13, 17), 0.25))
    assert_close(tokens.content, torch.full((6, 16), -0.5))
    halves = torch.cat([torch.zeros(1, 16, 12), torch.ones(1, 16, 12)], dim=2)
    small = tokenizer.decode(tokenizer.encode(halves))
    assert small.shape == (1, 8, 12)
    assert small[0, :, 1].max() < 0.1
    assert small[0, :, -2].min() > 0.9


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (torch.rand(1, 7, 8), "7x8 pixels, which 2x4 patches do not tile"),
        (
            torch.rand(3, 4, 8),
            r"has 3 channels, but the tokenizer takes 1; .*--tokenizer.channels 3",
        ),
        (torch.rand(1, 4, 8) * 255, "give floats in"),
        (torch.rand(1, 4, 8) - 0.5, "give floats in"),
        (torch.full((1, 4, 8), float("nan")), "without NaN"),
        (torch.zeros(1, 4, 8, dtype=torch.int64), "tensor .* int64"),
        (torch.zeros(1, 1, 4, 8), "tensor .* float32; give"),
        (torch.zeros(1, 0, 8), "no pixels"),
        (np.zeros((4, 8), complex), "array .* complex128"),
        (Image.new("P", (8, 4)), "PIL mode 'P'"),
        ([[0.0]], "not list"),
        (None, "not NoneType"),
    ],
)
def test_what_is_not_a_valid_image_is_refused(image, reason):
    with pytest.raises(DataError, match=reason):
        Patches((2, 4)).encode(image)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda: Patches(0), "at least 1"),
        (lambda: Patches(2, std=0.0), "positive"),
        (lambda: Patches(2, channels=3, mean=(0.1, 0.2)), "mean has 2 numbers for 3 channels"),
        (
            lambda: Patches(4, resize=(8, 10)),
            "resize is 8x10 pixels, which 4x4 patches do not tile",
        ),
        (
            lambda: Patches(4, resize=Resize(12, crop=(8, 10))),
            "resize is 8x10 pixels, which 4x4 patches do not tile",
        ),
        (
            lambda: Patches(4, resize=Resize((8, 8)), crop=True),
            r"give resize, too, as \(height, width\)",
        ),
        (
            lambda: Patches(4, num_prefix_tokens=-1),
            "num_prefix_tokens=-1; give a number from 0 to 1,024",
        ),
        (
            lambda: Patches(4, num_prefix_tokens=2000),
            "num_prefix_tokens=2000; give a number from 0 to 1,024",
        ),
        (lambda: Patches(4, positions="index"), "images of one size; give resize"),
        (
            lambda: Patches(4, positions="index", resize=Resize(8)),
            "images of one size; give resize",
        ),
        (lambda: Patches(4, positions="rows"), "positions='rows'; give grid or index"),
        (lambda: Patches(4, stem=[3, 5, 7]), "more convolutions than 6x6 pixels"),
        (lambda: Patches(4, stem=[0]), "channels below 1"),
        (lambda: Patches(4, stem=[3], num_prefix_tokens=1), "give num_prefix_tokens=0, or no stem"),
        (
            lambda: Patches(2).decode(
                Tokens(torch.zeros(3, 4), torch.tensor([[0.0, 0], [0, 1], [1, 1]]))
            ),
            "do not fill",
        ),
        (
            lambda: Patches(2).decode(Tokens(torch.zeros(2, 4), torch.tensor([[0.0, 0], [0, 0]]))),
            "do not fill",
        ),
    ],
)
def test_wrong_use_is_refused_with_its_reason(use, reason):
    with pytest.raises(ValueError, match=reason):
        use()


def test_a_crop_keeps_the_aspect_ratio_of_the_middle():
    """Of a wide image the middle square, of a tall one too: what is left and right, or above and below, is cut."""
    wide = torch.cat([torch.zeros(1, 8, 4), torch.rand(1, 8, 8), torch.ones(1, 8, 4)], dim=2)
    square = wide[..., 4:12]
    tokenizer = Patches(4, resize=(8, 8), crop=True)
    assert torch.equal(tokenizer.encode(wide).content, tokenizer.encode(square).content)
    assert torch.equal(tokenizer.resized(wide.mT), square.mT)
    assert not torch.equal(
        Patches(4, resize=(8, 8)).encode(wide).content, tokenizer.encode(square).content
    )
    with pytest.raises(ValueError, match="give resize, too"):
        Patches(4, crop=True)


def test_grey_is_three_equal_colours():
    grey = torch.rand(1, 4, 8)
    assert torch.equal(
        Patches(4, channels=3).encode(grey).content,
        Patches(4, channels=3).encode(grey.repeat(3, 1, 1)).content,
    )


def test_equal_tokenizers_are_equal_in_bytes_and_come_back():
    """By which encoded data of an earlier process is found again."""
    one, other = (Patches(2, channels=3, mean=(0.1, 0.2, 0.3), std=0.4) for _ in range(2))
    image = torch.rand(3, 4, 4)
    tokens = one.encode(image)
    assert (
        pickle.dumps(one)
        == pickle.dumps(other)
        != pickle.dumps(Patches(2, channels=3, mean=(0.1, 0.2, 0.4)))
    )
    assert torch.equal(pickle.loads(pickle.dumps(one)).encode(image).content, tokens.content)


@pytest.mark.parametrize("positions", ["grid", "index"])
def test_learned_tokens_stand_before_the_patches(positions):
    image = torch.rand(3, 6, 8)
    plain = Patches((3, 2), channels=3, resize=(6, 8)).encode(image)
    tokenizer = Patches((3, 2), channels=3, resize=(6, 8), num_prefix_tokens=2, positions=positions)
    tokens = tokenizer.encode(image)
    tokenizer.spec.check(tokens)
    assert torch.equal(tokens.content[:, :2], torch.eye(10, 2))
    assert torch.equal(tokens.content[2:, 2:], plain.content)
    assert not tokens.content[:2, 2:].any()
    if positions == "index":
        assert tokens.positions[:, 0].tolist() == list(range(10))
    else:
        assert tokens.positions[:2].tolist() == [[-1, -1], [-1, -1]]
        assert torch.equal(tokens.positions[2:], plain.positions)


@pytest.mark.parametrize("positions", ["grid", "index"])
@pytest.mark.parametrize("num_prefix_tokens", [0, 3])
def test_patches_are_found_among_learned_tokens_in_any_order(num_prefix_tokens, positions):
    tokenizer = Patches(2, resize=(4, 6), num_prefix_tokens=num_prefix_tokens, positions=positions)
    image = torch.rand(1, 4, 6)
    tokens = tokenizer.encode(image).at(torch.randperm(6 + num_prefix_tokens))
    assert_close(tokenizer.decode(tokens), image)
    assert_close(tokenizer.pixels(tokens), image)
    assert int(tokenizer.is_patch(tokens).sum()) == len(tokenizer.patches(tokens)) == 6


def test_an_image_is_not_cut():
    tokenizer = Patches(2, resize=(4, 6), positions="index")
    tokens = tokenizer.encode(torch.rand(1, 4, 6))
    assert tokenizer.cut(tokens, 6) is tokens
    with pytest.raises(DataError, match="6 tokens cannot be cut to 5"):
        tokenizer.cut(tokens, 5)


def test_transparency_of_a_pil_image_is_laid_on_white_and_four_channels_are_refused():
    """Every colour at every transparency, as PIL mixes them."""
    colour, alpha = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    image = Image.fromarray(np.stack([colour, colour.T, colour[::-1], alpha], axis=-1))
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    right, tokenizer = Image.alpha_composite(white, image).convert("RGB"), Patches(8, channels=3)
    assert torch.equal(tokenizer.encode(image).content, tokenizer.encode(right).content)
    with pytest.raises(DataError, match="4 channels"):
        tokenizer.encode(np.asarray(image))


@pytest.mark.parametrize("name", ["channels", "resize"])
def test_what_a_recipe_finds_is_refused_without_one(name):
    with pytest.raises(ValueError, match=f"{name}=auto.* is for recipes"):
        Patches(8, **{name: "auto"})


def test_with_a_stem_a_token_holds_its_patch_and_its_margins_with_the_edges_repeated():
    """Each pixel by brute force; and the patches alone, decoded, are the image."""
    tokenizer, image = Patches((5, 9), channels=2, mean=0, std=1, stem=[3]), torch.rand(2, 10, 27)
    tokens = tokenizer.encode(image)
    tokenizer.spec.check(tokens)
    for content, (row, column) in zip(tokens.content, tokens.positions.int().tolist(), strict=True):
        rows = torch.arange(5 * row - 1, 5 * row + 6).clamp(0, 9)
        columns = torch.arange(9 * column - 2, 9 * column + 11).clamp(0, 26)
        assert torch.equal(content, image[:, rows][:, :, columns].flatten())
    order = torch.randperm(len(tokens))
    assert torch.equal(tokenizer.decode(tokens.at(order)), image)


def test_a_stem_is_the_convolutions_of_the_whole_image():
    """At windows within the image, whose first convolutions are those of the image at every fourth pixel."""
    tokenizer, image = Patches(4, mean=0, std=1, stem=[3]), torch.rand(1, 12, 16)
    torch.manual_seed(0)
    stem = tokenizer.spec.embedder(7)
    (convolution,) = stem.convolutions
    with torch.no_grad():
        found = stem(tokenizer.encode(image).content[None])[0]
        # [3 6 8]
        whole = F.gelu(convolution(F.pad(image[None], [1, 1, 1, 1], mode="replicate")))[0]
        two = whole[:, 2:4, 4:6]  # of the patch in row 1 and column 2
        assert_close(found[6], stem.norm(stem.linear(two.flatten())))


def test_a_tokenizer_with_a_stem_keeps_the_laws():
    raws = [torch.rand(1, h, w) for h, w in ((6, 12), (12, 12), (6, 6))]
    bad = [torch.rand(1, 5, 6), torch.full((1, 6, 6), torch.nan)]
    tokenizer = Patches(6, stem=[3, 5])
    check_tokenizer(tokenizer, raws, unfitted=tokenizer, bad=bad, other_process=False)
