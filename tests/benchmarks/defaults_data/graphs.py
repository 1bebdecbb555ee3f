"""Nodes of one graph: 20 % labelled for training, 10 % for validation, 70 % for the test."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import Case
from tests.benchmarks.defaults_data.packages import debian

TUNE = {
    "nodes/blocks-with-attribute": lambda: _blocks(),
    "nodes/verbs": lambda: _verbs(),
    "nodes/regions": lambda: _regions(),
}
JUDGE = {
    "nodes/communities": lambda: _communities(),
    "nodes/roles": lambda: _roles(),
}


def _nodes(
    pairs: np.ndarray, targets: list[Any], value: np.ndarray | None, random: np.random.Generator
) -> Case:
    """pairs: [edges 2], each edge once. value: a number for each node, or None."""
    n = len(targets)
    counts = n // 5, n // 10, n - n // 5 - n // 10
    part = random.permutation(np.repeat(["train", "valid", "test"], counts))
    return nodes_case(pairs, targets, value, part)


def nodes_case(
    pairs: np.ndarray, targets: list[Any], value: np.ndarray | None, part: np.ndarray
) -> Case:
    """pairs: [edges 2], each edge once. value: a number for each node, or None. part: "train", "valid" or "test"."""
    n = len(targets)

    def write(folder: Path) -> list[str]:
        with (folder / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "label", "split", *(["value"] if value is not None else [])])
            for i in range(n):
                own = [] if value is None else [f"{value[i]:.4f}"]
                writer.writerow([f"n{i}", targets[i], part[i], *own])
        with (folder / "edges.csv").open("w", encoding="utf-8") as file:
            file.write("source,target\n" + "".join(f"n{a},n{b}\n" for a, b in pairs))
        return [str(folder)]

    adjacency = np.zeros((n, n))
    adjacency[pairs[:, 0], pairs[:, 1]] = adjacency[pairs[:, 1], pairs[:, 0]] = 1
    features = np.zeros((n, 0)) if value is None else value[:, None]
    return Case("nodes", (adjacency, features, part), targets, part == "test", write)


def _blocks() -> Case:
    """A block model: 480 nodes of four classes, 20 % labelled for training, with a weak number for each node."""
    random, n = np.random.default_rng(3), 480
    label = random.permutation(np.arange(n) % 4)
    chance = np.where(label[:, None] == label[None], 0.06, 0.008)
    pairs = np.argwhere(np.triu(random.uniform(size=(n, n)) < chance, 1))
    return _nodes(pairs, [f"block{y}" for y in label], label + random.normal(0, 2.5, n), random)


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
    files = {
        "32": "communication",
        "35": "contact",
        "38": "motion",
        "40": "possession",
        "41": "social",
    }
    lines = (
        (debian("wordnet-base") / "usr/share/wordnet/data.verb")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    rows = {line.split()[0]: line for line in lines if line[0] != " " and line.split()[1] in files}
    found = {
        (min(one, other), max(one, other))
        for one, line in rows.items()
        for other in re.findall(r" (\d{8}) v ", line.split(" | ")[0])
        if other in rows and other != one
    }
    degree = Counter(node for pair in found for node in pair)
    kept = {
        node: i
        for i, (node, _) in enumerate(
            sorted(degree.items(), key=lambda item: (-item[1], item[0]))[:1_500]
        )
    }
    pairs = np.array(sorted((kept[a], kept[b]) for a, b in found if a in kept and b in kept))
    num_words = np.array([float(int(rows[node].split()[3], 16)) for node in kept])
    return _nodes(
        pairs, [files[rows[node].split()[1]] for node in kept], num_words, np.random.default_rng(6)
    )


def _communities() -> Case:
    """Six communities of 30 to 180 people, each with an attribute that is wrong for half of them; seed 13."""
    random, sizes = np.random.default_rng(13), [30, 60, 80, 100, 150, 180]
    label = random.permutation(np.repeat(np.arange(6), sizes))
    n = len(label)
    chance = np.where(label[:, None] == label[None], 4 / np.array(sizes)[label], 0.003)
    pairs = np.argwhere(np.triu(random.uniform(size=(n, n)) < chance, 1))
    value = np.where(random.uniform(size=n) < 0.5, label, random.integers(0, 6, n)).astype(float)
    return _nodes(pairs, [f"community{y}" for y in label], value, random)


def _roles() -> Case:
    """Teams of a chief, three deputies and twelve members, whose edges go by role, and a weak number; seed 14."""
    random, teams = np.random.default_rng(14), 40
    roles = np.tile(np.repeat(np.arange(3), [1, 3, 12]), teams)
    n, team = len(roles), np.repeat(np.arange(teams), 16)
    table = np.array([[0.05, 0.9, 0.05], [0.9, 0.05, 0.5], [0.05, 0.5, 0.05]])
    chance = np.where(team[:, None] == team[None], table[roles[:, None], roles[None]], 0.001)
    pairs = np.argwhere(np.triu(random.uniform(size=(n, n)) < chance, 1))
    return _nodes(
        pairs,
        [("chief", "deputy", "member")[y] for y in roles],
        roles + random.normal(0, 2.0, n),
        random,
    )
