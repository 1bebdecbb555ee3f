"""Who reads whom, as one object for all layers; and what an attention may be asked to honour.

b batch · n tokens that read · m tokens that are read · h heads · c channels of one head · r channel pairs · d width
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from seqkit.contract import Links

FEATURES = {
    "both ways": "read tokens after its own (causal=False)",
    "causal": "keep from reading tokens after its own (causal=True)",
    "links": "keep to the links of graphs",
    "segments": "keep packed sequences apart",
    "rotation": "turn queries and keys by position (Rotary)",
    "bias": "add a bias of positions to the scores (ALiBi, T5Bias)",
    "relative": "put embedded distances into the scores (RelativeEmbedding)",
    "source": "read another sequence (cross-attention)",
    "cache": "go on step by step with a cache",
    "groups": "share keys and values between heads (num_kv_heads below num_heads)",
}
"""What an attention may declare in `honours`. Padding is not among them: every attention must honour it."""

EVERYTHING = frozenset(FEATURES)


@dataclass(frozen=True, slots=True)
class Reading:
    """Who reads whom. Attention that scores every pair takes `attend` as it is; others work from the rest.

    attend: [b|1 h|1 n|1 m] bool (True = may read) or float (added to the scores, -inf = may not); None: everyone, or
    the past.
    causal: True: token i reads tokens <= i. With attend=None and n == m only, since SDPA aligns its triangle top-left.
    rotation: [b 1 n r] complex numbers of length one that turn r channel pairs of queries and keys; None: no rotation.
    relative: [b n m c] added to each key as each reader sees it, in the scores; None: nothing.
    valid, read_valid: [b n] and [b m] bool, True = real, of those who read and those who are read. None: all real.
    links, link_bias: as in `Embedded`, for attention that goes along them.
    """

    attend: Tensor | None = None
    causal: bool = False
    rotation: Tensor | None = None
    relative: Tensor | None = None
    valid: Tensor | None = None
    read_valid: Tensor | None = None
    links: Links | None = None
    link_bias: Tensor | None = None


class Source(NamedTuple):
    """Another sequence to read: hidden [b m d], and who reads whom of it."""

    hidden: Tensor
    reading: Reading


def refuse_unless_honoured(
    name: str, honours: frozenset[str], needed: Iterable[str], instead: str | None = None
) -> None:
    """Raise ValueError where something is needed that is not honoured, with the attention nearest to it that does.

    name: of the mechanism. needed: names from FEATURES. instead: what to do, where it is not another mechanism.
    """
    missing = [feature for feature in FEATURES if feature in set(needed) - honours]
    if not missing:
        return
    if instead is None:
        from seqkit.registry import parts

        needed = set(needed)
        kinds = [(part.name, part.load()) for part in parts("mechanism").values()]
        can = [kind for kind, cls in kinds if cls.honours >= needed and ("links" in needed or not cls.needs_links)]
        instead = f"use the mechanism {' or '.join(can[:3])}" if can else "no mechanism can do all this together"
    raise ValueError(f"{name} cannot {' nor '.join(FEATURES[feature] for feature in missing)}; {instead}")
