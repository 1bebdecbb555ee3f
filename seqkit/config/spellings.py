"""Keys as other toolkits spell them, answered with the key of a recipe. Imports nothing."""

from __future__ import annotations

from seqkit.errors import UsageError

SPELLINGS = {
    "data": "dataset data_path data_dir",
    "data.batch_size": "batch_size bs train_batch_size per_device_train_batch_size",
    "data.limit": "limit max_samples max_train_samples",
    "data.max_tokens": "max_tokens max_len max_length max_seq_length",
    "data.num_workers": "num_workers workers",
    "data.target": "target target_column label_column",
    "data.window": "window seq_len sequence_length context_length block_size",
    "model.backbone": "backbone arch model_name",
    "model.backbone.depth": "depth num_layers n_layer n_layers num_hidden_layers",
    "model.backbone.dim": "dim d_model hidden_dim hidden_size n_embd",
    "model.backbone.num_heads": "num_heads n_head n_heads num_attention_heads",
    "model.dropout": "dropout",
    "model.objective": "objective loss task",
    "optimizer.lr": "lr learning_rate max_lr",
    "optimizer.weight_decay": "weight_decay wd",
    "schedule": "scheduler lr_scheduler lr_scheduler_type",
    "schedule.warmup_steps": "warmup warmup_steps num_warmup_steps",
    "seed": "random_seed random_state",
    "trainer.accelerator": "accelerator device",
    "trainer.accelerator gpu": "gpu cuda",
    "trainer.callbacks '[{type: EarlyStopping, monitor: valid/loss, patience: VALUE}]'": (
        "patience early_stopping_patience"
    ),
    "trainer.accumulate_grad_batches": "gradient_accumulation_steps",
    "trainer.devices": "devices gpus num_gpus",
    "trainer.gradient_clip_val": "grad_clip max_grad_norm",
    "trainer.max_epochs": "max_epochs epochs num_epochs num_train_epochs",
    "trainer.max_steps": "max_steps steps num_steps",
    "out": "output output_dir save_dir",
    "preset debug": "debug fast_dev_run",
    "resume": "resume_from_checkpoint ckpt_path",
}
"""For each key, or option of `fit`, maybe with its value, the spellings that are answered with it."""


def check_spelling(key: str, value: str = "VALUE") -> None:
    """Raise UsageError, with what to type, if a key at the top is spelled as elsewhere, with or without `_`."""
    spelled = key.lower().replace("-", "").replace("_", "")
    for known, others in SPELLINGS.items():
        if spelled in others.replace("_", "").split():
            words = known if " " in known else f"{known} VALUE"
            raise UsageError(f"there is no key {key!r}; type --{words.replace('VALUE', value)}")
