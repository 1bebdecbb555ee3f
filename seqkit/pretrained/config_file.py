"""`config.json` of Hugging Face's transformers, whose values are read or refused, and whose unknown keys are named."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, one_line
from seqkit.files import decoded, load_json, read_small

log = logging.getLogger("seqkit")

NAME = "config.json"
MAX_BYTES = 1 << 20

HARMLESS = re.compile(
    # names and versions; what the weights tell themselves
    r"_?name_or_path|_attn_implementation_autoset|_?num_labels|architectures|auto_map|(torch_)?dtype|torchscript"
    r"|transformers_version|model_type|.*(id2label|label2id)|finetuning_task|language|prefix|problem_type|.*_class"
    r"|task_specific_params|(type_)?vocab_size|tie_.*|is_encoder_decoder|is_decoder|add_cross_attention|projection_dim"
    # training, losses and first weights
    r"|.*drop(out)?(_.*)?|.*layerdrop|.*init(ializer)?_.*|init_std|.*loss.*|(no_)?mask_(time|channel|feature)_.*"
    r"|apply_spec_augment|.*codevector.*|num_negatives|contrastive_.*|gradient_checkpointing|use_bfloat16|pretraining_tp"
    r"|sparse_pred.*|ctc_.*|freeze_.*|time_step_.*|use_mask_token"
    # generation
    r"|.*token_ids?|.*_to_id|.*(penalty|ngram_size|suppress_tokens)|num_(beam|return).*|(max|min)_length|top_[kp]|typical_p"
    r"|do_sample|temperature|early_stopping|bad_words_ids|force(d)?_.*|remove_invalid_values|.*cache.*|decoder_start_.*"
    # outputs, and heads that are not read
    r"|output_.*|return_dict.*|pooler_.*|summary_.*|seq_classif.*|classif.*|xvector_.*|tdnn_.*|num_adapter_layers"
    r"|adapter_(kernel_size|stride)|use_weighted_layer_sum|out_(features|indices)|stage_names|encoder_stride|decoder_bias"
    # kernels, precision, and names that older versions wrote
    r"|chunk_size_feed_forward|pruned_heads|deterministic_flash_attn|reference_compile|repad_logits_.*|use_mambapy"
    r"|use_associative_scan|use_falcon_mamba|residual_in_fp32|fused_add_norm|rms_norm|pad_vocab_size_multiple|n_(ctx|layer)"
    r"|d_(model|inner)|ssm_cfg|directionality|cross_attention_hidden_size|max_position_embeddings|position_embedding_type"
    r"|original_max_position_embeddings|n_positions|median_filter_width|num_(hidden|feat_extract)_layers|save_step"
    r"|(do_blenderbot_90|normalize_(before|emb)|extra_pos|static_position|add_(bias|final)).*"
    # processors: what is done in batches, and to what is no colour image
    r"|_valid_processor_keys|(input_)?data_format|device|disable_grouping|do_convert_rgb|(do_)?reduce_labels|pad_size"
    r"|image_seq_length|return_.*|mel_filters|n_samples|nb_max_frames|padding_side"
)
"""Keys that change nothing here if no family reads them; a file may have them without a word."""


def own_file(path: Path) -> Path:
    """The path itself. Raises DataError for a link out of its folder, other than to the blobs of the hub's cache."""
    folder = path.parent.resolve()
    target = path.resolve()
    blobs = next(
        (place.parent / "blobs" for place in folder.parents if place.name == "snapshots"), None
    )
    if path.is_symlink() and target.parent not in (folder, blobs):
        raise DataError(
            f"{path} is a link out of its folder, and could be any file; put a copy in its place"
        )
    return path


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Content of a JSON file of a foreign folder. Raises DataError if it is damaged, too large, or a link elsewhere."""
    try:
        return load_json(decoded(read_small(own_file(path), max_bytes)))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no JSON ({one_line(error)}); copy it again") from error


class ConfigFile:
    """Settings of a foreign model; keys that were not read at the end are a warning (`warn_of_unread`).

    path: the file. kinds: keys of which one names the type of the model. section: key below which the settings stand,
    and maybe their type; None: they are at the top.
    Raises DataError where the file is missing, damaged, or names no type.
    """

    def __init__(
        self,
        path: Path,
        *,
        kinds: Sequence[str] = ("model_type", "architecture"),
        section: str | None = None,
    ):
        self.path = path
        if not path.exists():
            raise DataError(
                f"{path} is missing; give a folder that transformers saved (save_pretrained)"
            )
        values = read_json(path)
        whole = values if isinstance(values, Mapping) else {}
        inner = whole if section is None else whole.get(section)
        inner = inner if isinstance(inner, Mapping) else {}
        found = [one[kind] for one in (inner, whole) for kind in kinds if kind in one]
        if not found or not isinstance(found[0], str):
            raise DataError(
                f"{path} names no {kinds[0]}; give a folder that transformers saved (save_pretrained)"
            )
        self.model_type: str = found[0]
        self._values = dict(inner)
        self._read: set[str] = set(kinds)
        self._sections: dict[str, ConfigFile] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """Value of a key, or the default where it is not written."""
        self._read.add(name)
        return self._values.get(name, default)

    def section(self, name: str) -> ConfigFile:
        """Settings below a key; the type of the whole is theirs if they name none.

        Raises DataError for a value that holds no settings.
        """
        if name not in self._sections:
            if not isinstance(self.get(name) or {}, Mapping):
                raise self.refused(name, "settings by name")
            self._sections[name] = ConfigFile(self.path, section=name)
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
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not abs(value) < float("inf")
        ):
            raise self.refused(name, "a number")
        return float(value)

    def positive(self, name: str, default: float) -> float:
        """A finite number above 0, such as the epsilon of a norm. Raises DataError for anything else."""
        value = self.number(name, default)
        if value <= 0:
            raise self.refused(name, "a number above 0")
        return value

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

    def warn_of_unread(self) -> None:
        """Log the keys that were not read and are not `HARMLESS`: they may change what the model computes."""
        for section in self._sections.values():
            section.warn_of_unread()
        left = sorted(
            key for key in self._values if key not in self._read and not HARMLESS.fullmatch(key)
        )
        if left:
            log.warning(
                "%s: keys that are not known, and may change what the model computes: %s",
                self.path,
                left,
            )

    def refused(self, name: str, known: str) -> DataError:
        """The error for a value that is not read."""
        return DataError(
            f"{self.path}: {name} is {self._values.get(name)!r}, and what is read is {known}"
        )
