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
        "sources.audio": ["Fsdd", "SpokenDigits"],
        "sources.folder": ["AudioFolder", "FileFolder", "ImageFolder", "TextFolder"],
        "sources.graph_file": ["GraphFile"],
        "sources.graph": ["Cora", "FreeSolv", "Karate", "SmilesTable", "Solubility"],
        "sources.image": ["Cifar10", "Digits", "FashionMnist", "Mnist", "Mnist5k"],
        "sources.pairs": ["Pairs"],
        "sources.mixed_table": ["Cars", "MixedTable"],
        "sources.pronunciation": ["CMUdict"],
        "sources.punctuation": ["Punctuation", "SentenceEnds"],
        "sources.table": ["SmsSpam", "Table"],
        "sources.text": ["Shakespeare", "TextFiles", "TinyShakespeare"],
    },
)
