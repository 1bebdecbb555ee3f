"""Limits of a server: what one request may cost, and how many may wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest requests that a server takes.

    body_bytes: of a request. bodies_bytes: of all requests that are being received or answered. inputs: examples of a
    request. json_values: commas and brackets of a body of JSON, of which Python makes objects. characters: of a text.
    smiles_characters: of a SMILES string, whose distances take time by the square. tokens: of an example, and of a
    prompt. pixels: of an image. audio_values: samples times channels of a sound. new_tokens: of a generated text.
    stops, stop_characters: number and length of stop texts. waiting: requests that have no answer yet. seconds: from
    the last byte of a request to its answer, and for receiving its body.
    """

    body_bytes: int = 2**24
    bodies_bytes: int = 2**28
    inputs: int = 64
    json_values: int = 2**18
    characters: int = 2**16
    smiles_characters: int = 1000
    tokens: int = 4096
    pixels: int = 2**24
    audio_values: int = 2**24
    new_tokens: int = 2048
    stops: int = 8
    stop_characters: int = 100
    waiting: int = 512
    seconds: float = 30.0

    @property
    def batch_tokens(self) -> int:
        """Most tokens of a batch, padding included."""
        return self.tokens
