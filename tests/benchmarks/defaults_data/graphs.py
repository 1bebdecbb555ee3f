"""Nodes of one graph: 20 % labelled for training, 10 % for validation, 70 % for the test."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import Case
from tests.benchmarks.defaults_data.packages import debian

DRAWS = {
    1: {
        "nodes/blocks": lambda: _blocks(weak=False, homophily=True),
        "nodes/blocks-with-attribute": lambda: _blocks(weak=True, homophily=True),
        "nodes/unlike-neighbours": lambda: _blocks(weak=True, homophily=False),
    },
    2: {
        "nodes/verbs": lambda: _verbs(),
        "nodes/words": lambda: _words(),
        "nodes/hubs": lambda: _hubs(),
        "nodes/regions": lambda: _regions(),
    },
}


def _nodes(pairs: np.ndarray, targets: list[Any], value: np.ndarray | None, random: np.random.Generator) -> Case:
    """pairs: [edges 2], each edge once. value: a number for each node, or None."""
    n = len(targets)
    counts = n // 5, n // 10, n - n // 5 - n // 10
    part = random.permutation(np.repeat(["train", "valid", "test"], counts))

    def write(folder: Path) -> list[str]:
        with (folder / "nodes.csv").open("w", encoding="utf-8") as file:
            file.write("id,label,split" + (",value\n" if value is not None else "\n"))
            for i in range(n):
                file.write(f"n{i},{targets[i]},{part[i]}" + (f",{value[i]:.4f}\n" if value is not None else "\n"))
        with (folder / "edges.csv").open("w", encoding="utf-8") as file:
            file.write("source,target\n" + "".join(f"n{a},n{b}\n" for a, b in pairs))
        return [str(folder)]

    adjacency = np.zeros((n, n))
    adjacency[pairs[:, 0], pairs[:, 1]] = adjacency[pairs[:, 1], pairs[:, 0]] = 1
    features = np.zeros((n, 0)) if value is None else value[:, None]
    return Case("nodes", (adjacency, features, part), targets, part == "test", write)


def _blocks(*, weak: bool, homophily: bool) -> Case:
    """A block model: 480 nodes of four classes, 20 % labelled for training; weak: a weak number for each node."""
    random, n = np.random.default_rng(int(weak) + 2 * int(homophily)), 480
    label = random.permutation(np.arange(n) % 4)
    same = label[:, None] == label[None]
    chance = (
        np.where(same, 0.06, 0.008) if homophily else np.where((label[:, None] + label[None]) % 4 == 3, 0.06, 0.008)
    )
    pairs = np.argwhere(np.triu(random.uniform(size=(n, n)) < chance, 1))
    value = label + random.normal(0, 2.5, n) if weak else None
    return _nodes(pairs, [f"block{y}" for y in label], value, random)


def _hubs() -> Case:
    """A degree-corrected block model: 600 nodes of five classes, few of which have most edges; seed 4."""
    random, n = np.random.default_rng(4), 600
    label = random.permutation(np.arange(n) % 5)
    weight = np.minimum(1 + random.pareto(2.0, n), 12)
    chance = np.where(label[:, None] == label[None], 0.02, 0.002) * weight[:, None] * weight[None]
    pairs = np.argwhere(np.triu(random.uniform(size=(n, n)) < chance, 1))
    return _nodes(pairs, [f"block{y}" for y in label], None, random)


def _regions() -> Case:
    """500 places in a square, joined where they are near; classes are the nearest of six centres; seed 5."""
    random, n = np.random.default_rng(5), 500
    places, centres = random.uniform(size=(n, 2)), random.uniform(size=(6, 2))
    label = np.linalg.norm(places[:, None] - centres, axis=-1).argmin(1)
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    pairs = np.argwhere(np.triu(distance < 0.07, 1))
    return _nodes(pairs, [f"region{y}" for y in label], None, random)


def _verbs() -> Case:
    """Domain of a verb in WordNet 3.0, from its pointers to other verbs and its number of words; seed 6."""
    files = {"32": "communication", "35": "contact", "38": "motion", "40": "possession", "41": "social"}
    lines = (debian("wordnet-base") / "usr/share/wordnet/data.verb").read_text(encoding="utf-8").splitlines()
    rows = {line.split()[0]: line for line in lines if line[0] != " " and line.split()[1] in files}
    found = {
        (min(one, other), max(one, other))
        for one, line in rows.items()
        for other in re.findall(r" (\d{8}) v ", line.split(" | ")[0])
        if other in rows and other != one
    }
    degree = Counter(node for pair in found for node in pair)
    kept = {node: i for i, (node, _) in enumerate(sorted(degree.items(), key=lambda item: (-item[1], item[0]))[:1_500])}
    pairs = np.array(sorted((kept[a], kept[b]) for a, b in found if a in kept and b in kept))
    num_words = np.array([float(int(rows[node].split()[3], 16)) for node in kept])
    return _nodes(pairs, [files[rows[node].split()[1]] for node in kept], num_words, np.random.default_rng(6))


def _words() -> Case:
    """Noun or adjective, of frequent words in WordNet's definitions, joined where they are neighbours there; seed 7."""
    place = debian("wordnet-base") / "usr/share/wordnet"
    parts: dict[str, set[str]] = {}
    for part in ("noun", "verb", "adj"):
        for line in (place / f"index.{part}").read_text(encoding="utf-8").splitlines():
            parts.setdefault(line.split(" ")[0], set()).add(part)
    lines = (place / "data.noun").read_text(encoding="utf-8").splitlines()
    texts = [re.findall(r"[a-z]+", line.split(" | ")[1]) for line in lines if line[0] != " "]
    known = {word for word, own in parts.items() if own in ({"noun"}, {"adj"}) and len(word) > 2}
    counts = Counter(word for text in texts for word in text if word in known)
    kept = {word: i for i, (word, _) in enumerate(counts.most_common(800))}
    joined = Counter(
        (min(kept[a], kept[b]), max(kept[a], kept[b]))
        for text in texts
        for a, b in itertools.pairwise(text)
        if a in kept and b in kept and a != b
    )
    pairs = np.array(sorted(joined))
    length = np.array([float(len(word)) for word in kept])
    return _nodes(pairs, [min(parts[word]) for word in kept], length, np.random.default_rng(7))
