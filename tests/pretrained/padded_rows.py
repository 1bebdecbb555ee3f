"""Logits of a row that is padded in several ways, as ours and as transformers compute them."""

import torch

from seqkit.interfaces import TokenBatch

PADDED = {"left": [4, -9], "inside": [-4, 4, -5], "right": [-9, 4]}
"""Runs of columns: so many real tokens, where negative, and else so much padding."""


def is_real(runs):
    return torch.cat([torch.full((abs(run),), run < 0) for run in runs])


def by_theirs(model, ids, runs, last):
    """Logits of the real tokens [n v], and of a further token [v] from the cache that the row left.

    A second row without padding is beside it, and the positions of the row count its real tokens.
    """
    real = is_real(runs)
    row = torch.full(real.shape, int(ids[0]))
    row[real] = ids
    mask = torch.stack([real, torch.ones_like(real)]).long()
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    given = {"attention_mask": mask, "position_ids": positions, "use_cache": True}
    found = model(row.expand(2, -1).contiguous(), **given)
    name = "cache_params" if hasattr(found, "cache_params") else "past_key_values"
    given = {"position_ids": positions[:, -1:] + 1, name: found[name]}
    if name == "past_key_values":  # the others' own `generate` gives a token no mask
        given["attention_mask"] = torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], dim=1)
    after = model(last.expand(2, 1).contiguous(), use_cache=True, **given)
    return found.logits[0][real], after.logits[0, -1]


def by_ours(model, ids, runs, last):
    """The same: a part of the prompt ends with each run of padding, as rows of unlike lengths do in our cache."""
    parts = []
    begin = 0
    for run in runs:
        num = abs(run)
        valid = torch.tensor([run < 0, True])[:, None].expand(2, num)
        content = torch.full((2, num), int(ids[0]))
        if run < 0:
            content[0] = ids[begin : begin + num]
            begin += num
        parts.append((content, valid))
    parts.append((last.expand(2, 1), torch.ones(2, 1, dtype=torch.bool)))
    cache = model.backbone.init_cache(sum(map(abs, runs)) + 1)
    found = []
    count = torch.zeros(2, 1, dtype=torch.long)
    for content, valid in parts:
        positions = count + valid.cumsum(dim=1) - 1
        count = count + valid.sum(dim=1, keepdim=True)
        batch = TokenBatch(content, positions.clamp(min=0)[..., None].double(), valid)
        found.append(model(batch, cache=cache)[0][valid[0]])
    logits = torch.cat(found)
    return logits[:-1], logits[-1]


def alone(model, ids, last):
    """The same of the row by itself: in one pass, without a cache."""
    whole = torch.cat([ids, last])
    if hasattr(model, "backbone") and hasattr(model.backbone, "init_cache"):
        positions = torch.arange(len(whole))[None, :, None].double()
        valid = torch.ones(1, len(whole), dtype=torch.bool)
        logits = model(TokenBatch(whole[None], positions, valid))[0]
    else:
        logits = model(whole[None], use_cache=False).logits[0]
    return logits[:-1], logits[-1]
