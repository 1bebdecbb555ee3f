"""Texts, with classes or a number to predict."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data.case import Case, distinct, each_class, fewer, split, write_table
from tests.benchmarks.defaults_data.packages import debian, r_table, text_of

DRAWS = {
    1: {
        "text/fortunes": lambda: _fortunes(),
        "text/languages": lambda: _languages(each=400),
        "text/languages-160": lambda: _languages(each=40),
        "text/sentiment-of-words": lambda: _sentiment(),
    },
    2: {
        "text/glosses": lambda: _glosses(),
        "text/subjectivity": lambda: _subjectivity(),
        "text/provinces": lambda: _provinces(),
        "text/first-names": lambda: _first_names(),
        "text/artworks": lambda: _artworks(),
    },
}


def _texts(name: str, texts: list[str], targets: list[Any]) -> Case:
    texts, targets = fewer(texts, targets)
    is_test = split(len(texts), name)
    rows = [{"text": text} for text in texts]
    return Case("text", texts, targets, is_test, lambda folder: write_table(folder, rows, targets, is_test))


def _fortunes() -> Case:
    """Topic of a fortune cookie: eight files of the package."""
    place = debian("fortunes") / "usr/share/games/fortunes"
    topics = ["computers", "science", "food", "law", "love", "medicine", "people", "politics", "sports", "work"]
    found = [
        (" ".join(part.split()), topic)
        for topic in topics
        for part in (place / topic).read_text(encoding="utf-8", errors="replace").split("\n%\n")
        if part.strip()
    ]
    return _texts("fortunes", [text for text, _ in found], [topic for _, topic in found])


def _languages(each: int) -> Case:
    """Language of a word; `each` words of four languages."""
    lists = {"english": "wamerican", "german": "wngerman", "french": "wfrench", "italian": "witalian"}
    names = {"english": "american-english", "german": "ngerman", "french": "french", "italian": "italian"}
    words: list[str] = []
    targets: list[Any] = []
    for language, package in lists.items():
        content = (debian(package) / "usr/share/dict" / names[language]).read_bytes()
        try:
            known = content.decode().split()
        except UnicodeDecodeError:
            known = content.decode("latin-1").split()
        known = sorted({word.lower() for word in known if word.isalpha() and len(word) > 4})
        chosen = np.random.default_rng(0).permutation(len(known))[:each]
        words += [known[i] for i in chosen]
        targets += [language] * each
    return _texts(f"languages {each}", words, targets)


def _sentiment() -> Case:
    """Mean rating of a word by ten people, from -4 to 4."""
    lines = [line.split("\t") for line in text_of("vaderSentiment", "vaderSentiment/vader_lexicon.txt").splitlines()]
    kept = [(line[0], float(line[1])) for line in lines if line[0].isalpha() and len(line[0]) > 3]
    return _texts("sentiment", [word for word, _ in kept], [rating for _, rating in kept])


def _glosses() -> Case:
    """Domain of a noun, such as food or person, from its definition in WordNet 3.0; 250 of each of eight."""
    files = {"04": "act", "05": "animal", "06": "artifact", "10": "communication", "13": "food", "18": "person"}
    files |= {"26": "state", "27": "substance"}
    lines = (debian("wordnet-base") / "usr/share/wordnet/data.noun").read_text(encoding="utf-8").splitlines()
    found = [
        (line.split(" | ")[1].split('; "')[0].strip(), files[line.split()[1]])
        for line in lines
        if line[0] != " " and line.split()[1] in files
    ]
    return _texts("glosses", *each_class(found, 250))


def _subjectivity() -> Case:
    """Subjectivity of an adjective, 0 to 1, from the word and its sense; the first sense of each word."""
    lines = text_of("textblob", "textblob/en/en-sentiment.xml").splitlines()
    words = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lines if ' sense="' in line]
    first = {word["form"]: word for word in reversed(words)}
    texts = [f"{form}: {word['sense']}" for form, word in first.items()]
    return _texts("subjectivity", texts, [float(word["subjectivity"]) for word in first.values()])


def _provinces() -> Case:
    """Country of a province or district (ISO 3166-2), of the eight countries that have the most."""
    path = debian("iso-codes") / "usr/share/iso-codes/json/iso_3166-2.json"
    found = [(row["name"], row["code"][:2]) for row in json.loads(path.read_text(encoding="utf-8"))["3166-2"]]
    countries = [country for country, _ in Counter(country for _, country in found).most_common(8)]
    return _texts("provinces", *each_class([row for row in found if row[1] in countries], 250))


def _first_names() -> Case:
    """Whether a first name is a woman's or a man's; those of both left out."""
    sexes: dict[str, set[str]] = {}
    for line in text_of("gender_guesser", "gender_guesser/data/nam_dict.txt").splitlines():
        if line[0] != "#":
            sexes.setdefault(line[3:29].strip(), set()).add(line[:2].strip())
    named = {"F": "female", "M": "male"}
    found = [(name, named[min(sex)]) for name, sex in sexes.items() if sex in ({"F"}, {"M"}) and name.isalpha()]
    return _texts("first names", *each_class(found, 1_000))


def _artworks() -> Case:
    """Year of a work of art at the Tate Gallery, from its title and medium."""
    frame = r_table("modeldata/tate_text").dropna()
    texts = [f"{title}. {medium}" for title, medium in zip(frame["title"], frame["medium"], strict=True)]
    return _texts("artworks", *distinct(texts, frame["year"].astype(float).tolist()))
