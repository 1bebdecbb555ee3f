# %% [markdown]
# # The first run
#
# After this notebook you can train a model, read its result, predict with it, and look at its attention.
#
# The task is small: name the digit in a picture of 8 × 8 pixels. One call trains a Transformer on 1,295 pictures. It
# takes about 30 seconds on one free processor core, with imports and a classical method to compare with.

# %%
from pathlib import Path

import matplotlib.pyplot as plt

import seqkit

run = seqkit.fit(
    "image/digits", {"trainer.enable_progress_bar": False}, preset="quick", out="runs/first"
)

# %% [markdown]
# `image/digits` is a recipe: a YAML file that says which data, tokenizer, model and optimizer to use. `quick` is one of
# its presets. The second argument overrides any key of the recipe. On the command line the same run is
# `seqkit fit image/digits --preset quick --out runs/first`.
#
# ## Read the result
#
# The summary holds the metrics of the test split, which the training never saw.

# %%
summary = run.summary
print(f"test accuracy     {100 * summary['metrics']['accuracy']:.1f} %")
print(f"best constant     {100 * summary['baseline']['accuracy']:.1f} %")
print(
    f"{summary['strong_baseline']['name']}: {100 * summary['strong_baseline']['metrics']['accuracy']:.1f} %"
)
print(f"parameters        {summary['num_parameters']:,}")
print(f"training pictures {summary['num_train']:,}, test pictures {summary['num_test']:,}")

# %% [markdown]
# seqkit sets two rivals beside each run. The first always gives the most frequent answer. The second is a classical
# method that takes seconds. If the model is worse than the second, the report says so.
#
# The run also wrote a page with the learning curves and some samples. It is one file and needs no network:
# [report.html](runs/first/report.html).

# %%
sorted(path.name for path in Path("runs/first").iterdir())

# %% [markdown]
# ## Predict
#
# `predict` takes raw examples and returns an answer for each. A raw example of this recipe is a tensor with the axes
# channels, height, width and with values from 0 to 1.

# %%
import torch
from sklearn.datasets import load_digits

images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
run.predict(images[:10])

# %% [markdown]
# For the probabilities, ask for them. Their order is that of the classes.

# %%
from seqkit.data.inputs import Input
from seqkit.runs.answers import predictions

chosen = [Input(f"image {index}", images[index]) for index in (0, 11, 22, 33, 44, 55)]
figure, axes = plt.subplots(1, 6, figsize=(9, 2))
for axis, given, answer in zip(axes, chosen, predictions(run, chosen, probabilities=True)):
    axis.imshow(given.raw[0].numpy(), cmap="gray_r")
    axis.set_title(f"{answer.prediction}: {100 * answer.probabilities.max():.0f} %")
    axis.axis("off")

# %% [markdown]
# A run folder is all that you need later. `seqkit.load` reads it without the training data.

# %%
again = seqkit.load("runs/first")
again.predict(images[:10]) == run.predict(images[:10])

# %% [markdown]
# ## Look at the attention
#
# `seqkit attention runs/first --example 0` draws every head of every layer for one test picture. From Python:

# %%
from seqkit.report.attention import view_example

page, said = view_example(Path("runs/first"), 0, Path("seen"))

# %% [markdown]
# The page: [attention.html](seen/attention.html).
#
# ## Change one thing
#
# Another backbone is one word, on the command line or in Python:
# `seqkit fit image/digits --preset quick --model.backbone GRU`. `--keys` in place of a value lists every key of a
# recipe, and `seqkit list backbones` lists the backbones.
#
# Next: [your own data](../your-data.md), or [compare two backbones](compare-two-backbones.py) fairly.
