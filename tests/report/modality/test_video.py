"""Clips in reports: the first frames beside each other, attention over its own tubelet."""

import numpy as np
import torch
from matplotlib.figure import Figure

from seqkit.report.modality import find_renderer
from seqkit.tokenizers.video import Tubelets


def test_first_frames_stand_beside_each_other_and_attention_lies_on_its_tubelet():
    tokenizer = Tubelets((2, 3, 5), frames=4)
    clip = torch.rand(4, 1, 6, 5)
    tokens, received = tokenizer.encode(clip), np.arange(4.0)
    renderer = find_renderer(tokenizer)
    axes = Figure().add_subplot()
    renderer.draw(axes, None, tokens, received)
    shown, heat = (np.asarray(image.get_array()) for image in axes.images)
    assert np.allclose(shown, np.concatenate([clip[0, 0], clip[2, 0]], axis=1), atol=1e-6)
    assert heat[::3, ::5].tolist() == [[0, 2], [1, 3]]
    renderer.mark_tokens(axes, None, tokens)
    assert "<svg" in renderer.small_svg(None, tokens)
    assert renderer.token_names(None, tokens)[3] == "1,1"
