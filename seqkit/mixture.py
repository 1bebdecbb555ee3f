"""Several models around one backbone, a model for each task."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from seqkit.interfaces import Backbone
from seqkit.model import Model


class Mixture(nn.Module):
    """Models of several tasks that share one backbone: the same object, so a step of one task changes all of them.

    backbone: network that all tasks share. tasks: models by name, built with this very backbone; each has an embedder
    and a head of its own. Raises ValueError for a model that has another backbone.
    """

    def __init__(self, backbone: Backbone, tasks: Mapping[str, Model]):
        super().__init__()
        for name, model in tasks.items():
            if model.backbone is not backbone:
                raise ValueError(
                    f"the model of {name} has a backbone of its own; build it with the mixture's"
                )
        self.backbone = backbone
        self.tasks = nn.ModuleDict(tasks)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters; the backbone's count once."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)
