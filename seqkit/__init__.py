"""seqkit: text, images, audio and graphs as tokens through one shared backbone.

Importing this package imports no torch; each name below imports its module when it is first used.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "cli.compare": ["compare"],
        "cli.fit": ["fit"],
        "errors": ["DataError", "DivergedError", "UsageError"],
        "interfaces": [
            "Adjacency",
            "Backbone",
            "Cache",
            "Embedded",
            "LabeledBatch",
            "LossOutput",
            "ModelInput",
            "Objective",
            "PredictionObjective",
            "TokenBatch",
            "Tokenizer",
            "Tokens",
            "TokenSpec",
        ],
        "model": ["Model"],
        "raw": ["GraphData", "Waveform"],
        "registry": ["register"],
        "mixture": ["Mixture"],
        "runs.mixture": ["load"],
        "runs.trained_model": ["TrainedModel"],
    },
)
