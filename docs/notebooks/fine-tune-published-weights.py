# %% [markdown]
# # Fine-tune published weights
#
# After this notebook you can begin a training with the weights of a published model, and choose which of them train.
#
# A published model is a folder that Hugging Face's transformers saved: `config.json`, `model.safetensors` and
# `tokenizer.json`. This notebook has no network, so we make such a folder: a tiny BERT with random weights. Random
# weights teach nothing, but every step is that of a real model. With a network, write `hf:OWNER/NAME` for the folder.

# %%
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel
from transformers.utils import logging

WORDS = [
    "[UNK]",
    "a",
    "an",
    "the",
    "film",
    "plot",
    "cast",
    "was",
    "is",
    "and",
    "but",
    "not",
    "very",
    "so",
]
GOOD, BAD = (
    ["fine", "warm", "funny", "clever", "moving"],
    ["dull", "cold", "flat", "clumsy", "awful"],
)

torch.manual_seed(0)
vocabulary = [*WORDS, *GOOD, *BAD]
config = BertConfig(
    vocab_size=len(vocabulary),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
)
logging.disable_progress_bar()
BertModel(config).save_pretrained("tiny-bert")
words = Tokenizer(
    models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token=WORDS[0])
)
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.save("tiny-bert/tokenizer.json")
sorted(path.name for path in Path("tiny-bert").iterdir())

# %% [markdown]
# ## A table of your own
#
# Any table with a column of texts and a column of classes will do.

# %%
import csv
import random

draw = random.Random(0)
with Path("reviews.csv").open("w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(["review", "verdict"])
    for verdict, tone in {"good": GOOD, "bad": BAD}.items():
        subjects = [
            f"{article} {noun}" for article in ("a", "the") for noun in ("film", "plot", "cast")
        ]
        said = [f"{subject} was {how} {one} and {other}" for subject in subjects for how in ("so", "very")
                for one in tone for other in tone if one != other]  # fmt: skip
        table.writerows([review, verdict] for review in draw.sample(said, 150))
print(Path("reviews.csv").read_text(encoding="utf-8")[:150])

# %% [markdown]
# ## Fine-tune all weights
#
# `model.init` names the folder. Tokenizer, backbone, positions and dropout are then the model's. The recipe keeps its
# objective, so the head is new. On the command line:
# `seqkit fit text/classify --data reviews.csv --model.init hf:OWNER/NAME --optimizer.lr 0.0001`.

# %%
import seqkit

common = {
    "data.source": {"type": "Table", "path": "reviews.csv"},
    "data.batch_size": 16,
    "model.init": "tiny-bert",
    "trainer.max_epochs": 4,
    "trainer.enable_progress_bar": False,
}
tuned = seqkit.fit(
    "text/classify", {**common, "optimizer.lr": 0.003}, out="runs/tuned", classical="off"
)
tuned.summary["initial"]

# %%
print(f"test accuracy {100 * tuned.summary['metrics']['accuracy']:.0f} %")
tuned.predict(["the plot was very dull and awful", "a cast was so warm and funny"])

# %% [markdown]
# A published model wants a smaller learning rate than random weights: 0.00002 to 0.0002 suits most.
#
# ## Train fewer weights
#
# LoRA keeps the published weights as they are, and learns a small correction beside each linear layer. It needs less
# memory. When training ends, the corrections are added to the weights. `Freeze` keeps the backbone, and trains the head
# alone.

# %%
lora = {**common, "trainer.fine_tuning": "LoRA", "optimizer.lr": 0.01}
with_lora = seqkit.fit("text/classify", lora, out="runs/lora", classical="off")
for name, run in {"all weights": tuned, "LoRA": with_lora}.items():
    trained = run.summary.get("trained_parameters", run.summary["num_parameters"])
    print(
        f"{name:11} {trained:6,} parameters trained, test accuracy {100 * run.summary['metrics']['accuracy']:.0f} %"
    )

# %% [markdown]
# ## Give it back
#
# `seqkit export runs/tuned --to hf --out folder` writes a folder that transformers reads.
#
# Next: [pretrained weights](../pretrained.md) lists the families that seqkit reads, and other ways to use them.
