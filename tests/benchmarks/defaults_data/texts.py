"""Texts, with classes or a number to predict."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tests.benchmarks.defaults_data.case import Case, each_class, fewer, split, write_table
from tests.benchmarks.defaults_data.packages import debian, text_of

TUNE = {
    "text/fortunes": lambda: _fortunes(),
    "text/sentiment-of-words": lambda: _sentiment(),
    "text/subjectivity": lambda: _subjectivity(),
    "text/first-names": lambda: _first_names(),
}
JUDGE = {
    "text/verbs": lambda: _verbs(),
    "text/parts-of-speech": lambda: _parts_of_speech(),
    "text/divisions": lambda: _divisions(),
}


def _texts(name: str, texts: list[str], targets: list[Any]) -> Case:
    texts, targets = fewer(texts, targets)
    is_test = split(len(texts), name)
    rows = [{"text": text} for text in texts]
    return Case(
        "text", texts, targets, is_test, lambda folder: write_table(folder, rows, targets, is_test)
    )


def _fortunes() -> Case:
    """Topic of a fortune cookie: eight files of the package."""
    place = debian("fortunes") / "usr/share/games/fortunes"
    topics = [
        "computers",
        "science",
        "food",
        "law",
        "love",
        "medicine",
        "people",
        "politics",
        "sports",
        "work",
    ]
    found = [
        (" ".join(part.split()), topic)
        for topic in topics
        for part in (place / topic).read_text(encoding="utf-8", errors="replace").split("\n%\n")
        if part.strip()
    ]
    return _texts("fortunes", [text for text, _ in found], [topic for _, topic in found])


def _sentiment() -> Case:
    """Mean rating of a word by ten people, from -4 to 4."""
    lines = [
        line.split("\t")
        for line in text_of("vaderSentiment", "vaderSentiment/vader_lexicon.txt").splitlines()
    ]
    kept = [(line[0], float(line[1])) for line in lines if line[0].isalpha() and len(line[0]) > 3]
    return _texts("sentiment", [word for word, _ in kept], [rating for _, rating in kept])


def _subjectivity() -> Case:
    """Subjectivity of an adjective, 0 to 1, from the word and its sense; the first sense of each word."""
    lines = text_of("textblob", "textblob/en/en-sentiment.xml").splitlines()
    words = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lines if ' sense="' in line]
    first = {word["form"]: word for word in reversed(words)}
    texts = [f"{form}: {word['sense']}" for form, word in first.items()]
    return _texts("subjectivity", texts, [float(word["subjectivity"]) for word in first.values()])


def _first_names() -> Case:
    """Whether a first name is a woman's or a man's; those of both left out."""
    sexes: dict[str, set[str]] = {}
    for line in text_of("gender_guesser", "gender_guesser/data/nam_dict.txt").splitlines():
        if line[0] != "#":
            sexes.setdefault(line[3:29].strip(), set()).add(line[:2].strip())
    named = {"F": "female", "M": "male"}
    found = [
        (name, named[min(sex)])
        for name, sex in sexes.items()
        if sex in ({"F"}, {"M"}) and name.isalpha()
    ]
    return _texts("first names", *each_class(found, 1_000))


def _verbs() -> Case:
    """Domain of a verb, such as motion, from its definition in WordNet 3.0; 200 of each of eight."""
    files = {
        "29": "body",
        "30": "change",
        "31": "cognition",
        "32": "communication",
        "35": "contact",
    }
    files |= {"36": "creation", "38": "motion", "41": "social"}
    lines = (
        (debian("wordnet-base") / "usr/share/wordnet/data.verb")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    found = [
        (line.split(" | ")[1].split('; "')[0].strip(), files[line.split()[1]])
        for line in lines
        if line[0] != " " and line.split()[1] in files
    ]
    return _texts("verbs", *each_class(found, 200))


def _parts_of_speech() -> Case:
    """Whether a word is a noun, a verb, an adjective or an adverb; words of several left out (WordNet 3.0)."""
    parts: dict[str, set[str]] = {}
    for part in ("noun", "verb", "adj", "adv"):
        path = debian("wordnet-base") / f"usr/share/wordnet/index.{part}"
        for line in path.read_text(encoding="utf-8").splitlines():
            parts.setdefault(line.split(" ")[0], set()).add(part)
    found = [(word, min(own)) for word, own in parts.items() if len(own) == 1 and word.isalpha()]
    return _texts("parts of speech", *each_class(found, 400))


def _divisions() -> Case:
    """What a part of a country is, such as a province or a municipality (ISO 3166-2): the six most frequent."""
    path = debian("iso-codes") / "usr/share/iso-codes/json/iso_3166-2.json"
    found = [
        (row["name"], row["type"].lower())
        for row in json.loads(path.read_text(encoding="utf-8"))["3166-2"]
    ]
    kinds = [kind for kind, _ in Counter(kind for _, kind in found).most_common(6)]
    return _texts("divisions", *each_class([row for row in found if row[1] in kinds], 250))
