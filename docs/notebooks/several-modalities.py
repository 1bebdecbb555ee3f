# %% [markdown]
# # Several modalities in one model
#
# After this notebook you can train one model on examples of several parts, such as a picture and a text, and see what
# each part tells it.
#
# Our examples are a handwritten digit and a spoken word for it, written as letters. Both may be hard to read alone: the
# pictures are small, and the texts have typing errors.

# %%
import random

import torch
from sklearn.datasets import load_digits

from seqkit import register
from seqkit.data import DataSource, Sample, Splits

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@register(
    "data_source", "read-digits", what="digits with their misspelt names", when="to try two parts"
)
class ReadDigits(DataSource):
    """600 pictures of digits in noise, each with its name, of which two letters may be wrong; a quarter is test."""

    def splits(self):
        """Samples by split. A raw example maps the name of each part to its raw data."""
        digits, letters = load_digits(), random.Random(0)
        noise = torch.Generator().manual_seed(0)
        samples = []
        for pixels, label in list(zip(digits.images, digits.target.tolist()))[:600]:
            image = torch.tensor(pixels[None], dtype=torch.float32) / 16
            image = (image + 0.2 * torch.randn(image.shape, generator=noise)).clamp(0, 1)
            text = list(WORDS[label])
            for _ in range(2):
                text[letters.randrange(len(text))] = letters.choice("aeinorst")
            samples.append(Sample({"image": image, "text": "".join(text)}, label))
        return Splits(train=samples[150:], test=samples[:150], names=WORDS)


# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 6, figsize=(9, 2))
for axis, sample in zip(axes, ReadDigits().splits().train):
    axis.imshow(sample.raw["image"][0].numpy(), cmap="gray_r")
    axis.set_title(sample.raw["text"])
    axis.axis("off")

# %% [markdown]
# ## Join the parts
#
# `Join` takes a tokenizer for each part, and makes one sequence of both. The backbone sees tokens and knows nothing of
# pictures or letters.

# %%
from seqkit.tokenizers import Characters, Join, Patches

tokenizer = Join({"image": Patches(4), "text": Characters()})
samples = ReadDigits().splits().train
tokenizer.fit([sample.raw for sample in samples])
tokens = tokenizer.encode(samples[0].raw)
[(name, len(run)) for name, run in tokens.parts]

# %% [markdown]
# ## Train on both
#
# A recipe names the parts below the tokenizer. `drop_parts` leaves out a part of some training examples. Without it a
# model leans on the easier part and does not learn the other.

# %%
import seqkit

recipe = {
    "recipe": "read-digits",
    "data": {"source": "read-digits", "batch_size": 32, "drop_parts": {"image": 0.2, "text": 0.2}},
    "tokenizer": {
        "type": "Join",
        "parts": {"image": {"type": "Patches", "patch": 4}, "text": "Characters"},
    },
    "model": {
        "objective": {"type": "Classify", "pool": "parts"},
        "position": "Sinusoidal",
        "backbone": {"type": "Transformer", "dim": 64, "depth": 2, "num_heads": 4},
    },
    "optimizer": {"type": "Muon", "lr": 0.01, "adamw": {"lr": 0.003}},
    "schedule": {"type": "Cosine", "warmup_steps": 20},
    "trainer": {"max_epochs": 6, "enable_progress_bar": False},
}
run = seqkit.fit(recipe, out="runs/read", classical="off")

# %% [markdown]
# ## See what each part tells
#
# A raw example without a part is an ordinary example. So the same model answers with both parts, or with one.

# %%
test = ReadDigits().splits().test
rows = {"both": ("image", "text"), "image alone": ("image",), "text alone": ("text",)}
for name, parts in rows.items():
    raws = [{part: sample.raw[part] for part in parts} for sample in test]
    right = sum(answer == WORDS[sample.label] for answer, sample in zip(run.predict(raws), test))
    print(f"{name:12} {100 * right / len(test):.1f} %")

# %% [markdown]
# Both parts together are better than each alone. The gain is the reason to join them; if there is none, train on one.
#
# ## One example
#
# The two parts may contradict each other. Then the probabilities show which one the model believes.

# %%
from seqkit.data.inputs import Input
from seqkit.runs.answers import predictions

four = next(sample for sample in test if sample.label == 4).raw
cases = {
    "a four, and the word four": {"image": four["image"], "text": "four"},
    "a four, and the word nine": {"image": four["image"], "text": "nine"},
    "the word nine alone": {"text": "nine"},
}
for answer in predictions(
    run, [Input(name, raw) for name, raw in cases.items()], probabilities=True
):
    four_or_nine = ", ".join(
        f"{WORDS[index]} {100 * answer.probabilities[index]:.0f} %" for index in (4, 9)
    )
    print(f"{answer.name}: {four_or_nine}")

# %% [markdown]
# A table with a column of files and a column of texts needs no code:
# `seqkit fit multimodal/table --data products.csv --data.target verdict`.
#
# Next: [everything about parts](../multimodal.md): captions, retrieval, several tasks in one backbone.
