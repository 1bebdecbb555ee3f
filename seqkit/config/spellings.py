"""Keys as other toolkits spell them, answered with the key of a recipe. Imports nothing."""

from __future__ import annotations

from seqkit.errors import UsageError

SPELLINGS = {
    "data": "dataset dataset_name data_path data_dir train_file train_data",
    "data.batch_size": "batch_size bs batch per_device_train_batch_size train_batch_size",
    "data.limit": "limit max_samples max_train_samples num_samples",
    "data.max_tokens": "max_len max_length max_seq_length max_tokens",
    "data.num_workers": "num_workers workers dataloader_num_workers",
    "data.target": "target target_column label_column",
    "data.valid_fraction": "valid_fraction val_split validation_split val_fraction",
    "data.window": "window seq_len seq_length sequence_length context_length block_size bptt",
    "model.backbone": "backbone arch architecture model_name model_type",
    "model.backbone.depth": "depth layers num_layers n_layer n_layers num_hidden_layers",
    "model.backbone.dim": "dim width d_model hidden_dim hidden_size n_embd embed_dim",
    "model.backbone.num_heads": "heads num_heads n_head n_heads num_attention_heads",
    "model.dropout": "dropout",
    "model.objective": "objective loss task",
    "optimizer": "optim",
    "optimizer.lr": "lr learning_rate rate base_lr max_lr",
    "optimizer.weight_decay": "weight_decay wd l2",
    "schedule": "scheduler lr_scheduler lr_scheduler_type",
    "schedule.warmup_steps": "warmup warmup_steps num_warmup_steps",
    "seed": "random_seed random_state manual_seed rng_seed",
    "trainer.accelerator": "device accelerator",
    "trainer.accelerator gpu": "gpu cuda",
    "trainer.callbacks '[{type: EarlyStopping, patience: VALUE}]'": "patience early_stopping_patience",
    "trainer.accumulate_grad_batches": "accumulate_grad_batches gradient_accumulation_steps grad_accum",
    "trainer.devices": "devices gpus num_gpus",
    "trainer.gradient_clip_val": "gradient_clip_val grad_clip clip clip_grad max_grad_norm",
    "trainer.max_epochs": "max_epochs epochs epoch num_epochs n_epochs num_train_epochs",
    "trainer.max_steps": "max_steps steps num_steps n_steps iterations iters",
    "trainer.precision": "precision dtype",
    "out": "output output_dir out_dir save_dir logdir",
    "resume": "resume_from resume_from_checkpoint ckpt_path checkpoint",
}
"""For each key, or option of `fit`, maybe with its value, the spellings that are answered with it."""


def check_spelling(key: str, value: str = "VALUE") -> None:
    """Raise UsageError, with what to type, if a key at the top is spelled as elsewhere, with or without `_`."""
    spelled = key.lower().replace("-", "").replace("_", "")
    for known, others in SPELLINGS.items():
        if spelled in others.replace("_", "").split():
            words = known if " " in known else f"{known} VALUE"
            raise UsageError(f"there is no key {key!r}; type --{words.replace('VALUE', value)}")
