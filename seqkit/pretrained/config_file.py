"""`config.json` of Hugging Face's transformers, of which every key is read, known to change nothing, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from seqkit.errors import DataError
from seqkit.files import decoded, load_json, read_small

NAME = "config.json"
MAX_BYTES = 1 << 20

CHANGES_NOTHING = {
    "_attn_implementation_autoset", "_name_or_path", "_num_labels", "add_cross_attention", "architectures", "auto_map",
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "cache_implementation", "chunk_size_feed_forward",
    "classifier_dropout", "cls_token_id", "cross_attention_hidden_size", "decoder_start_token_id", "directionality",
    "diversity_penalty", "do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id",
    "gradient_checkpointing", "id2label", "initializer_factor", "initializer_range", "is_decoder",
    "is_encoder_decoder", "label2id", "language", "length_penalty", "mask_token_id", "max_length", "min_length",
    "model_type", "n_ctx", "name_or_path", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels",
    "num_return_sequences", "output_attentions", "output_hidden_states", "output_past", "output_scores",
    "pad_token_id", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type", "prefix", "pretraining_tp", "problem_type", "pruned_heads", "qa_dropout", "remove_invalid_values",
    "repetition_penalty", "return_dict", "return_dict_in_generate", "sep_token_id", "seq_classif_dropout",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tie_weights_",
    "tie_word_embeddings", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version",
    "type_vocab_size", "typical_p", "unk_token_id", "use_bfloat16", "use_cache", "vocab_size",
}  # fmt: skip
"""Keys that do not change what a forward pass gives, or that the weights tell themselves."""


class ConfigFile:
    """Settings of a foreign model; what was not read at the end is refused (`check_all_read`).

    path: the file. kinds: keys of which one names the type of the model. section: key below which the settings stand,
    and maybe their type; None: they are at the top. changes_nothing: keys that need not be read.
    Raises DataError where the file is missing, damaged, or names no type.
    """

    def __init__(
        self,
        path: Path,
        *,
        kinds: Sequence[str] = ("model_type", "architecture"),
        section: str | None = None,
        changes_nothing: Set[str] = CHANGES_NOTHING,
    ):
        self.path = path
        try:
            values = load_json(decoded(read_small(path, MAX_BYTES)))
        except FileNotFoundError:
            raise DataError(f"{path} is missing; give a folder that transformers saved (save_pretrained)") from None
        except ValueError as error:
            raise DataError(f"{path} is no JSON ({' '.join(str(error).split())}); copy it again") from error
        whole = values if isinstance(values, Mapping) else {}
        inner = whole if section is None else whole.get(section)
        inner = inner if isinstance(inner, Mapping) else {}
        found = [one[kind] for one in (inner, whole) for kind in kinds if kind in one]
        if not found or not isinstance(found[0], str):
            raise DataError(f"{path} names no {kinds[0]}; give a folder that transformers saved (save_pretrained)")
        self.model_type: str = found[0]
        self._values, self._changes_nothing = dict(inner), changes_nothing
        self._read: set[str] = set(kinds)
        self._sections: dict[str, ConfigFile] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """Value of a key, or the default where it is not written."""
        self._read.add(name)
        return self._values.get(name, default)

    def section(self, name: str) -> ConfigFile:
        """Settings below a key, all of which have to be read, too; the type of the whole is theirs if they name none.

        Raises DataError for a value that holds no settings.
        """
        if name not in self._sections:
            if not isinstance(self.get(name) or {}, Mapping):
                raise self.refused(name, "settings by name")
            self._sections[name] = ConfigFile(self.path, section=name, changes_nothing=self._changes_nothing)
        return self._sections[name]

    def size(self, name: str, default: int | None = None, *, most: int = 1 << 24) -> int:
        """A whole number from 1 to `most`. Raises DataError for anything else."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.refused(name, f"a whole number from 1 to {most:,}")
        return value

    def number(self, name: str, default: float) -> float:
        """A finite number. Raises DataError for anything else."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
            raise self.refused(name, "a number")
        return float(value)

    def one_of(self, name: str, options: Mapping[Any, Any], default: Any = None) -> Any:
        """Meaning of the value of a key. Raises DataError for a value that is not read, with those that are."""
        value = self.get(name, default)
        if isinstance(value, list | dict) or value not in options:
            raise self.refused(name, " or ".join(str(option) for option in options))
        return options[value]

    def must_be(self, default: Any, *names: str) -> None:
        """Raise DataError where one of these keys has another value than the one that is read, its default."""
        for name in names:
            if self.get(name, default) != default:
                raise self.refused(name, str(default))

    def check_all_read(self) -> None:
        """Raise DataError for the first key that was not read: it may change what the model computes."""
        for section in self._sections.values():
            section.check_all_read()
        left = sorted(self._values.keys() - self._read - self._changes_nothing)
        if left:
            raise DataError(
                f"{self.path}: the key {left[0]} of a {self.model_type} is not known, and could change what the model "
                "computes; it is refused until it is read"
            )

    def refused(self, name: str, known: str) -> DataError:
        """The error for a value that is not read."""
        return DataError(f"{self.path}: {name} is {self._values.get(name)!r}, and what is read is {known}")
