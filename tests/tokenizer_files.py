"""Small `tokenizer.json` files of the kinds that published models have, made by the library `tokenizers`."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXT = [
    "To be, or not to be, that is the question.",
    "A sea of troubles, and by opposing end them!",
] * 7


def byte_level(size: int = 293, post_processor: bool = False) -> Tokenizer:
    """As GPT-2's, and as LLaMA 3's with what it puts before a text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=alphabet,
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    made.train_from_iterator(TEXT, trainer)
    if post_processor:
        start = processors.TemplateProcessing(
            single="<|endoftext|> $A",
            pair="<|endoftext|> $A $B",
            special_tokens=[("<|endoftext|>", 0)],
        )
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), start])
    return made


def wordpiece() -> Tokenizer:
    """As BERT's: [CLS] and [SEP] around a text; and as MiniLM's, with padding to a length and truncation."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=89, special_tokens=special, show_progress=False)
    made.train_from_iterator(TEXT, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))],
    )
    made.enable_padding(length=31, pad_id=0, pad_token="[PAD]")
    made.enable_truncation(7)
    return made


def unigram() -> Tokenizer:
    """As T5's: </s> behind a text."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=71, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(TEXT, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>",
        pair="$A </s> $B </s>",
        special_tokens=[("</s>", made.token_to_id("</s>"))],
    )
    return made


KINDS = {"byte_level": byte_level, "wordpiece": wordpiece, "unigram": unigram}


def saved(made: Tokenizer, folder: Path) -> str:
    """Path of the file of a tokenizer, in that folder."""
    path = folder / "tokenizer.json"
    made.save(str(path))
    return str(path)


@cache
def kept() -> str:
    """Path of a file that stays until Python ends."""
    folder = Path(tempfile.mkdtemp(prefix="seqkit-tokenizer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return saved(byte_level(post_processor=True), folder)
