"""Data: sources of the user's own files, samples with their splits, and the loaders that make batches of tokens."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "augment": ["Affine", "Noise", "OnPart", "Shift", "SpecAugment", "SpeedPerturb"],
        "download": ["data_folder", "fetch"],
        "io": ["read_audio", "read_image", "read_text"],
        "module": ["DataModule", "Loading"],
        "sample": ["Sample", "Samples", "Splits"],
        "selection": ["Selection"],
        "source": ["DataSource"],
        "splits": ["by_group", "stratified"],
        "sources.folder_kinds": ["AudioFolder", "FileFolder", "ImageFolder", "TextFolder"],
        "sources.graph_file": ["GraphFile"],
        "sources.pairs": ["Pairs"],
        "sources.table": ["Division", "Table"],
        "sources.text": ["TextFiles"],
        "tables.schema": ["Given", "Schema"],
    },
)
