"""Keys of `config.json` that change nothing here, of which a change of a value need not show in what is read."""

import json
import re

from seqkit.errors import DataError
from seqkit.pretrained.folder import settings

HARMLESS = re.compile(
    # names and versions; what the weights tell themselves
    r"_?name_or_path|_attn_implementation_autoset|_?num_labels|architectures|auto_map|(torch_)?dtype|torchscript"
    r"|transformers_version|model_type|.*(id2label|label2id)|finetuning_task|language|prefix|problem_type|.*_class"
    r"|task_specific_params|(type_)?vocab_size|tie_.*|is_encoder_decoder|is_decoder|add_cross_attention|projection_dim"
    # training, losses and first weights
    r"|.*drop(out)?(_.*)?|.*layerdrop|.*init(ializer)?_.*|init_std|.*loss.*|(no_)?mask_(time|channel|feature)_.*"
    r"|apply_spec_augment|.*codevector.*|num_negatives|contrastive_.*|gradient_checkpointing|use_bfloat16|pretraining_tp"
    r"|sparse_pred.*|ctc_.*|freeze_.*|time_step_.*|linear_(a_log|dt)_.*|use_mask_token|sinusoidal_pos_embds"
    r"|task_type_vocab_size"
    # generation
    r"|.*token_ids?|.*_to_id|.*(penalty|ngram_size|suppress_tokens)|num_(beam|return).*|(max|min)_length|top_[kp]|typical_p"
    r"|do_sample|temperature|early_stopping|bad_words_ids|force(d)?_.*|remove_invalid_values|.*cache.*|decoder_start_.*"
    # outputs, and heads that are not read
    r"|output_.*|return_dict.*|pooler_.*|summary_.*|seq_classif.*|classif.*|xvector_.*|tdnn_.*|num_adapter_layers"
    r"|adapter_(kernel_size|stride)|use_weighted_layer_sum|out_(features|indices)|stage_names|encoder_stride|decoder_bias"
    # kernels, precision, and names that older versions wrote
    r"|(mamba_)?chunk_size(_feed_forward)?|num_logits_to_keep|pruned_heads|deterministic_flash_attn|reference_compile|repad_logits_.*|use_mamba(py|_kernels)"
    r"|use_associative_scan|use_falcon_mamba|residual_in_fp32|fused_add_norm|rms_norm|pad_vocab_size_multiple|n_(ctx|layer)"
    r"|d_(model|inner)|ssm_cfg|directionality|cross_attention_hidden_size|max_position_embeddings|position_embedding_type"
    r"|original_max_position_embeddings|n_positions|median_filter_width|num_(hidden|feat_extract)_layers|save_step"
    r"|(do_blenderbot_90|normalize_(before|emb)|extra_pos|static_position|add_(bias|final)).*"
    r"|(chunkwise|sequence|step)_kernel|.*_kernel_dtype|inference_state_dtype|max_inference_chunksize|mode"
    r"|norm_reduction_.*|return_last_states"
    # processors: what is done in batches, and to what is no colour image
    r"|_valid_processor_keys|(input_)?data_format|device|disable_grouping|do_convert_rgb|(do_)?reduce_labels|pad_size"
    r"|image_seq_length|return_.*|mel_filters|n_samples|nb_max_frames|padding_side"
)
"""Keys that change nothing here if no family reads them."""


def assert_any_other_value_counts(folder, task, harmless, counts=()):
    """Another value of any key of `config.json` is another model or refused, or the key changes nothing.

    harmless: keys that change nothing in this model, too. counts: keys that count in it, though they do not elsewhere.
    """
    path = folder / "config.json"
    held, found = json.loads(path.read_text()), settings(folder, task)
    for outer in (None, *(name for name in ("text_config", "vision_config") if name in held)):
        inner = held if outer is None else held[outer]
        for key, value in inner.items():
            changed = {**inner, key: another(value)}
            path.write_text(json.dumps(changed if outer is None else {**held, outer: changed}))
            try:
                has_changed = settings(folder, task) != found
            except DataError:
                has_changed = True
            is_known = key in harmless or (bool(HARMLESS.fullmatch(key)) and key not in counts)
            assert has_changed or is_known, (outer, key, value, another(value))


def another(value):
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2 + 0.01
        case str():
            return "tanh"
        case dict():
            return {**value, "factor": 3.0}
        case list():
            return [*value[::-1], 1]
        case _:
            return 3
