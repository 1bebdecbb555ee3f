"""Molecules in the cells of a table, as rdkit reads them; it is imported only where a table may hold some."""

from __future__ import annotations

from contextlib import suppress


def canonical(smiles: str) -> str:
    """The canonical SMILES of a molecule, the same for every way to write it; the text itself where rdkit reads none.

    Without rdkit, too, it is the text: nothing else reads molecules then.
    """
    return _canonical(smiles) or smiles


def is_molecule(text: str) -> bool:
    """Whether rdkit reads a text as SMILES. Without rdkit nothing is one."""
    return bool(_canonical(text))


def _canonical(smiles: str) -> str | None:
    with suppress(ImportError, UnicodeError, RuntimeError, ValueError):
        from rdkit import Chem, rdBase

        with rdBase.BlockLogs():
            molecule = Chem.MolFromSmiles(smiles.strip())
            return None if molecule is None else str(Chem.MolToSmiles(molecule))
    return None
