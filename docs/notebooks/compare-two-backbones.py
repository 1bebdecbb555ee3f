# %% [markdown]
# # Compare two backbones
#
# After this notebook you can compare backbones at an equal budget, and read the page that seqkit writes about it.
#
# Two trained models differ in many things: their size, their learning rate, their luck. `seqkit compare` makes equal
# what can be equal, repeats each training with several seeds, and says how sure the answer is.
#
# We use the smallest budget that still makes a page: two backbones, two seeds, one training step, no tuning. So the
# answer says nothing about these backbones. The end of this notebook says what a real budget takes.

# %%
import seqkit

results = seqkit.compare(
    "mechanism/tasks",
    ["Transformer", "GRU"],
    overrides={"data.source.num_train": 64, "data.source.num_test": 64},
    preset="debug",
    seeds=2,
    lr_trials=0,
    depths=False,
    measure=False,
    out="runs/copy",
)

# %% [markdown]
# Each training has a process of its own. In a script, put the call under `if __name__ == "__main__":`. On the command
# line the same is
# `seqkit compare mechanism/tasks --preset debug --backbones Transformer,GRU --seeds 2 --lr-trials 0 --no-depths`.
#
# ## Read the answer
#
# The page begins with the answer.

# %%
from seqkit.report.sentences import answers

print(answers(results).text)

# %% [markdown]
# *p* is the probability of such a difference, or a larger one, between two equal backbones. The interval would hold the
# true difference in 95 % of such comparisons. It covers other seeds and other test examples.
#
# ## Read the table
#
# The widths were searched so that both candidates have the same number of parameters, within 2 %.

# %%
for row in results.candidates:
    shown = results.metric.value(row.mean), results.metric.interval(row.interval)
    print(f"{row.name:12} {row.parameters:7,} parameters   {' '.join(shown)}")

# %% [markdown]
# A figure of the same: one dot for each seed, and the interval of the mean.

# %%
import matplotlib.pyplot as plt

metric = results.metric
figure, axis = plt.subplots(figsize=(7, 1.8))
for place, row in enumerate(results.candidates):
    axis.plot(
        [metric.shown(x) for x in row.interval],
        [place, place],
        color="lightgray",
        linewidth=9,
        zorder=0,
    )
    axis.plot([metric.shown(run.value) for run in row.runs], [place] * len(row.runs), "o")
axis.set_yticks(range(len(results.candidates)), [row.name for row in results.candidates])
axis.set(xlabel=metric.title, ylim=(-0.6, 1.6))
figure.tight_layout()

# %% [markdown]
# Both intervals hold 1 in 10, which is guessing: after one step neither has learned anything.
#
# ## Read what was not matched
#
# The page always says what else could explain a difference. A warning weighs more than a note.

# %%
for entry in results.unmatched:
    if entry.kind == "warning":
        print(entry.text)

# %% [markdown]
# The whole page is one file: [report.html](runs/copy/report.html).
#
# ## Use a real budget
#
# Leave out `preset`, `lr_trials` and `depths`. Each backbone then gets three learning rates or more, the depth is
# searched, and three seeds are trained. `seqkit compare … --dry-run` says how many runs that takes.
# [Published comparisons](../comparisons/index.md) show results of ten backbones and ten seeds.
#
# Next: [how the numbers are made](../compare.md).
