"""Data: named data sets, the user's own files, and the loaders that make batches of tokens of both."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "augment": ["Gain", "Noise", "OnPart", "Shift", "SpectralTilt", "SpeedPerturb"],
        "download": ["data_folder", "fetch"],
        "io": ["read_audio", "read_image", "read_text"],
        "module": ["DataModule"],
        "sample": ["Sample", "Samples", "Splits"],
        "source": ["DataSource"],
        "splits": ["by_group", "stratified"],
        "sources.audio": ["AudioFolder", "Fsdd", "SpokenDigits"],
        "sources.folder": ["FileFolder"],
        "sources.graph_file": ["GraphFile"],
        "sources.graph": ["Cora", "FreeSolv", "Karate", "Solubility"],
        "sources.image": ["Cifar10", "Digits", "FashionMnist", "ImageFolder", "Mnist", "Mnist5k"],
        "sources.pairs": ["Pairs"],
        "sources.mixed_table": ["Cars", "SmsSpam"],
        "sources.pronunciation": ["CMUdict"],
        "sources.punctuation": ["Punctuation", "SentenceEnds"],
        "sources.table": ["Division", "Table"],
        "tables.schema": ["Given", "Schema"],
        "sources.text": ["Shakespeare", "TextFiles", "TextFolder", "TinyShakespeare"],
    },
)
