"""Recipes that somebody wrote to break in, to use up the machine, or by accident with the wrong program.

`CASES` is plain data: (name, content of a recipe file). `seqkit fit` has to refuse each in one line with exit code 2
or 3, without running, importing or opening anything that the recipe names, and without making a folder.
`SENTINEL` is a module that no recipe may import: whoever runs the cases puts it where Python finds it.
"""

import gzip
import pickle

SENTINEL = "hostile_sentinel"

BASE = """\
recipe: hostile
data: {data}
tokenizer: {tokenizer}
model:
  objective: {objective}
  position: {position}
  backbone: {backbone}
optimizer: {optimizer}
schedule: {schedule}
seed: {seed}
trainer: {{max_steps: 1, accelerator: cpu, enable_progress_bar: false{trainer}}}
"""
DEFAULTS = {
    "data": "{source: digits, limit: 40}",
    "tokenizer": "{type: Patches, patch: 4}",
    "objective": "Classify",
    "position": "Sinusoidal",
    "backbone": "{type: Transformer, dim: 8, depth: 1, num_heads: 2}",
    "optimizer": "AdamW",
    "schedule": "Cosine",
    "seed": "1",
    "trainer": "",
}


def recipe(**changes: str) -> str:
    """A recipe that would train, but for what is changed in it."""
    return BASE.format(**DEFAULTS | changes)


# ── names of what is no component ────────────────────────────────────────────────────────────────────────────────────

NAMES = (
    "os.system",
    "os:system",
    "subprocess.Popen",
    "builtins.eval",
    "builtins.exec",
    "builtins.open",
    "eval",
    "__import__",
    "__class__",
    "importlib.import_module",
    "pickle.loads",
    "torch.load",
    "torch.hub.load",
    "torch.nn.Module",
    "torch.nn.attention._fa3.register_flash_attention_fa3",
    "torch.nn.attention._fa4.register_flash_attention_fa4",
    "torch.optim.Optimizer",
    "torch.optim.lr_scheduler.LambdaLR",
    "torch.optim.swa_utils.AveragedModel",
    "torch.optim._functional.adam",
    "torchvision.transforms.v2.Lambda",
    "Lambda",
    "torchvision.io.read_file",
    "pytorch_lightning.Trainer",
    "seqkit.registry.plugins:import_plugins",
    "seqkit.cli.main.main",
    "Node",
    f"{SENTINEL}.Run",
    f"{SENTINEL}:run",
)

SLOTS = {
    "data": "{{source: {{type: '{}'}}}}",
    "tokenizer": "'{}'",
    "objective": "{{type: '{}'}}",
    "position": "'{}'",
    "optimizer": "'{}'",
    "schedule": "'{}'",
    "backbone": "'{}'",
    "norm": "{{type: Transformer, dim: 8, depth: 1, num_heads: 2, norm: '{}'}}",
    "activation": "{{type: Transformer, dim: 8, depth: 1, num_heads: 2, block: {{mlp: {{activation: '{}'}}}}}}",
    "mechanism": "{{type: Transformer, dim: 8, depth: 1, num_heads: 2, block: {{attention: {{mechanism: '{}'}}}}}}",
    "augmentation": "{{source: digits, limit: 40, augment: ['{}']}}",
}
_SECTION = {
    "norm": "backbone",
    "activation": "backbone",
    "mechanism": "backbone",
    "augmentation": "data",
}

_names = [
    (f"{slot} named {name}", recipe(**{_SECTION.get(slot, slot): template.format(name)}))
    for slot, template in SLOTS.items()
    for name in NAMES
]

_keys = [
    ("a class as an argument of a component", recipe(optimizer="{type: AdamW, __class__: os.system}")),
    ("a private argument", recipe(tokenizer="{type: Patches, patch: 4, _grid: 2}")),
    ("an argument self", recipe(tokenizer="{type: Patches, patch: 4, self: 2}")),
    ("a key of the program", recipe() + f"plugin: {SENTINEL}.py\n"),
    ("keys of the program", recipe() + f"plugins: [{SENTINEL}.py]\n"),
    ("a dunder key", recipe() + "__builtins__: {eval: 1}\n"),
    ("a dunder section", recipe() + "__init__: {__globals__: {}}\n"),
    ("a dotted key", recipe() + "model.backbone.__class__: LSTM\n"),
    ("a class_path of another program", recipe(optimizer="{class_path: os.system, init_args: {command: id}}")),
    ("a _target_ of another program", recipe(optimizer="{_target_: os.system, command: id}")),
    ("a function as a schedule's scale", recipe(schedule=(
        "{type: torch.optim.lr_scheduler.CyclicLR, base_lr: 0.1, max_lr: 0.2, scale_fn: os.system}"))),
    ("a plug-in of the trainer", recipe(trainer=f", plugins: [{SENTINEL}.Run]")),
    ("a profiler that is a class", recipe(trainer=f", profiler: {SENTINEL}.Run")),
    ("a callback that is a class", recipe(trainer=f", callbacks: [{SENTINEL}.Run]")),
    ("a logger that is a class", recipe(trainer=f", logger: {SENTINEL}.Run")),
    ("a strategy that is a class", recipe(trainer=f", strategy: {SENTINEL}.Run")),
    ("an accelerator that is a class", recipe(trainer=f", accelerator: {SENTINEL}.Run")),
    ("a precision that is a class", recipe(trainer=f", precision: {SENTINEL}.Run")),
    ("a folder of the trainer", recipe(trainer=", default_root_dir: /usr")),
    ("a device of the component", recipe(optimizer="{type: torch.optim.SGD, device: cuda}")),
    ("a preset of the recipe that is no mapping", recipe() + "presets: os.system\n"),
    ("presets inside each other", recipe() + "presets: {debug: {presets: {debug: {}}}}\n"),
]  # fmt: skip

# ── YAML ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi")
)

_yaml = [
    ("os.system by a tag", "data: !!python/object/apply:os.system ['touch hostile']\n"),
    ("os.system by a tag in a list", recipe(data="[!!python/object/apply:os.system [id]]")),
    ("a name by a tag", "data: !!python/name:os.system\n"),
    ("a module by a tag", f"data: !!python/module:{SENTINEL}\n"),
    ("a new object by a tag", "data: !!python/object/new:subprocess.Popen [[id]]\n"),
    ("a tuple by a tag", "data: !!python/tuple [1, 2]\n"),
    ("a tag of the standard", recipe(seed="!!int '1'")),
    ("binary by a tag", recipe(data="!!binary aGVsbG8=")),
    ("a set by a tag", recipe(data="!!set {a, b}")),
    ("a timestamp by a tag", recipe(seed="!!timestamp 2026-01-31")),
    ("an include", "data: !include /etc/passwd\n"),
    ("the environment", "data: !ENV ${HOME}\n"),
    ("a tag by a directive", "%TAG ! tag:yaml.org,2002:python/\n---\ndata: !name:os.system\n"),
    ("a verbatim tag", "data: !<tag:yaml.org,2002:python/name:os.system> ''\n"),
    ("an anchor", recipe(seed="&seed 1")),
    ("an anchor and its alias", recipe(data="&d digits", tokenizer="*d")),
    ("an alias without anchor", recipe(data="*nothing")),
    ("a list that holds itself", "data: &a [*a]\n"),
    ("a mapping that holds itself", "data: &a {source: *a}\n"),
    ("a billion laughs", _laughs),
    ("a merge key", recipe() + "<<: {seed: 2}\n"),
    ("a merge key in a section", recipe(optimizer="{<<: {type: AdamW}, lr: 0.1}")),
    ("a key twice", recipe() + "seed: 2\n"),
    ("a key twice in a section", recipe(optimizer="{type: AdamW, lr: 0.1, lr: 0.2}")),
    ("a type twice", recipe(optimizer=f"{{type: AdamW, type: {SENTINEL}.Run}}")),
    ("a key twice in a preset", recipe() + "presets: {debug: {seed: 1, seed: 2}}\n"),
    ("a key twice, once in quotes", recipe() + "'seed': 2\n"),
    ("a key twice, once by escapes", recipe() + '"\\x73eed": 2\n'),
    ("brackets in brackets", "data: " + "[" * 20_000 + "]" * 20_000 + "\n"),
    ("braces in braces", "data: " + "{a: " * 5_000 + "1" + "}" * 5_000 + "\n"),
    ("dashes after dashes", "data: " + "\n" + "- " * 20_000 + "1\n"),
    ("deep indentation", "".join(f"{' ' * depth}a:\n" for depth in range(500))),
    ("components in components", "model: {backbone: " + "{type: AttentionDecoder, backbone: " * 400 + "LSTM"
     + "}" * 400 + "}\n"),
    ("components in components, not too deep for YAML", recipe(
        backbone="{type: AttentionDecoder, backbone: " * 20 + "LSTM" + "}" * 20)),
    ("a question mark as a key", "? [a, b]\n: 1\n"),
    ("a mapping as a key", "{a: 1}: 2\n"),
    ("a number as a key", recipe() + "1: 2\n"),
    ("null as a key", recipe() + "null: 2\n"),
    ("true as a key", recipe() + "true: 2\n"),
    ("several documents", recipe() + "---\n" + recipe()),
    ("a document after the end", recipe() + "...\nseed: 2\n"),
    ("nothing", ""),
    ("a comment alone", "# nothing\n"),
    ("null", "null\n"),
    ("a text alone", "os.system\n"),
    ("a list alone", "- os.system\n- id\n"),
    ("a tab as indentation", "data:\n\tsource: digits\n"),
    ("an open quote", 'data: "digits\n'),
    ("an open bracket", "data: [digits\n"),
    ("a block scalar as a section", recipe(data="|\n  import os\n  os.system('id')")),
    ("JSON of another program", '{"cells": [], "metadata": {}, "nbformat": 4}\n'),
    ("a shell script", "#!/bin/sh\ntouch hostile\n"),
    ("a Python file", "import os\nos.system('touch hostile')\n"),
    ("a template", "data: {{ ''.__class__.__mro__[1].__subclasses__() }}\n"),
    ("a page of HTML", "<!doctype html><script>alert(1)</script>\n"),
]  # fmt: skip

# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Runs:
    """What a pickle of an attacker holds: a call that takes place when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("import os; os.system('touch hostile')",)


_bytes = [
    ("UTF-16, little end first", b"\xff\xfe" + recipe().encode("utf-16-le")),
    ("UTF-16, big end first", b"\xfe\xff" + recipe().encode("utf-16-be")),
    ("UTF-16 without a mark", recipe().encode("utf-16-le")),
    ("UTF-32", recipe().encode("utf-32")),
    ("UTF-7", "data: +ACEAIQ-python/name:os.system\nmodel: 1\n".encode("utf-7")),
    ("Latin-1", recipe().encode() + b"# caf\xe9\n"),
    ("a byte-order mark twice", b"\xef\xbb\xbf" * 2 + recipe().encode()),
    ("an overlong slash", recipe().encode() + b"# \xc0\xaf\n"),
    ("half a surrogate pair", recipe().encode() + b"# \xed\xa0\x80\n"),
    ("half a surrogate pair, escaped", recipe().encode().replace(b"hostile", b'"\\ud800"')),
    ("cut inside a letter", recipe().encode() + b"# \xe2\x82"),
    ("NUL", recipe().encode() + b"seed2: \x001\n"),
    ("NUL alone", b"\x00"),
    ("a page of NUL", bytes(4096)),
    ("ESC", recipe().encode() + b"x: \x1b[31mred\n"),
    ("BEL and backspace", recipe().encode() + b"x: \x07\x08\n"),
    ("a C1 control character", recipe().encode() + "x: \x9b31m\n".encode()),
    ("DEL", recipe().encode() + b"x: \x7f\n"),
    ("a pickle", pickle.dumps(_Runs())),
    ("a pickle of protocol 0", pickle.dumps(_Runs(), protocol=0)),
    ("gzip", gzip.compress(recipe().encode(), mtime=0)),
    ("a PNG's header", b"\x89PNG\r\n\x1a\n" + bytes(100)),
    ("an ELF's header", b"\x7fELF\x02\x01\x01" + bytes(100)),
    ("a zip's header", b"PK\x03\x04" + bytes(100)),
    ("every byte", bytes(range(256)) * 16),
    ("a megabyte and more", recipe().encode() + b"#" * 2**20),
    ("a megabyte of values", b"data: [" + b"1," * 400_000 + b"1]\n"),
]

# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_BACKBONE = "{{type: Transformer, dim: {}, depth: {}, num_heads: {}}}"
_numbers = [
    *((f"seed {seed}", recipe(seed=seed)) for seed in (
        "-1", "4294967296", "18446744073709551616", "1e400", ".nan", ".inf", "-.inf", "0x10", "1_000", "1:30", "'1'",
        "1.5", "true", "null", "[1]", "9" * 5000, "1" * 300 + ".5", "٣", "１")),
    *((f"width {dim}", recipe(backbone=_BACKBONE.format(dim, 1, 1))) for dim in (
        "0", "-8", ".nan", ".inf", "1e3", "9999999999999", "9223372036854775807", "99999999999999999999", "1e999")),
    *((f"depth {depth}", recipe(backbone=_BACKBONE.format(8, depth, 1))) for depth in ("0", "-1", ".nan", "2.5")),
    *((f"heads {heads}", recipe(backbone=_BACKBONE.format(8, 1, heads))) for heads in ("0", "-2", "3", ".nan", "1e18")),
    *((f"patch {patch}", recipe(tokenizer=f"{{type: Patches, patch: {patch}}}")) for patch in (
        "0", "-4", ".nan", "[4]", "[0, 4]", "3", "9223372036854775807", "99999999999999999999")),
    *((f"batch size {size}", recipe(data=f"{{source: digits, limit: 40, batch_size: {size}}}")) for size in (
        "0", "-1", ".inf", "1.5", "99999999999999999999")),
    *((f"validation share {share}", recipe(data=f"{{source: digits, limit: 40, valid_fraction: {share}}}"))
      for share in ("-0.1", "1", "2", ".nan", ".inf")),
    *((f"learning rate {lr}", recipe(optimizer=f"{{type: AdamW, lr: {lr}}}"))
      for lr in ("-1", ".nan", ".inf", "1e999")),
    *((f"torch's learning rate {lr}", recipe(optimizer=f"{{type: torch.optim.SGD, lr: {lr}}}"))
      for lr in ("-1", ".nan", "os.system")),
    *((f"epochs {n}", recipe(trainer=f", max_epochs: {n}")) for n in (".nan", "1.5", "99999999999999999999")),
    *((f"clipping at {value}", recipe(trainer=f", gradient_clip_val: {value}")) for value in (".nan", ".inf")),
    ("dropout .nan", recipe(backbone="{type: Transformer, dim: 8, depth: 1, num_heads: 2, dropout: .nan}")),
    ("dropout 1e308", recipe(backbone="{type: Transformer, dim: 8, depth: 1, num_heads: 2, dropout: 1.0e+308}")),
    ("10**18 examples", recipe(data="{source: {type: copy, num_train: 1000000000000000000}}", tokenizer=(
        "{type: Ids, vocab_size: 10}"))),
    ("10**15 examples of a length", recipe(data="{source: {type: parity, length: 1000000000000000}}", tokenizer=(
        "{type: Ids, vocab_size: 10}"))),
    ("10**12 takes of a word", recipe(data="{source: {type: spoken-digits, takes: 1000000000000}}", tokenizer=(
        "LogMel"))),
    ("10**18 ids", recipe(data="{source: {type: copy, num_train: 10}}", tokenizer=(
        "{type: Ids, vocab_size: 1000000000000000000}"), objective="NextToken")),
]  # fmt: skip

# ── names of the run, and places ─────────────────────────────────────────────────────────────────────────────────────

_places = [
    *((f"the recipe's name {name}", recipe().replace("hostile", name, 1)) for name in (
        "../../../usr/hostile", "/usr/hostile", "a//b", ".hidden", "a/../b", "a/./b", r"C:\hostile", "a:b", '"a\\nb"',
        '"a\\x1b[31mb"', '"a\\0b"', '"\\u202eabc"', "''", "' '", "' / '", "null", "[a]", "{a: 1}", "7", "x" * 10_000)),
    *((f"data at {place}", recipe(data=f"'{place}'")) for place in (
        "/dev/zero", "/dev/null", "/dev/stdin", "/proc/self/environ", "/proc/self/mem", "../../../../etc/passwd",
        "/etc/shadow", "http://localhost/x.txt", "file:///etc/passwd", "~root/x.txt", "$HOME/x.txt", "$(touch hostile)",
        "`touch hostile`", "; touch hostile", "-rf", "a\\0b")),
    *((f"{kind} at {place}", recipe(data=f"{{source: {{type: {kind}, path: '{place}'}}}}", tokenizer=tokenizer))
      for kind, place, tokenizer in (
        ("TextFiles", "/dev/zero", "Bytes"), ("TextFiles", "/dev/stdin", "Bytes"), ("TextFiles", "/proc", "Bytes"),
        ("TextFiles", "nothing*.txt", "Bytes"), ("Table", "/dev/zero", "Molecule"),
        ("Table", "/etc/passwd", "Molecule"), ("ImageFolder", "/dev", "{type: Patches, patch: 4}"),
        ("ImageFolder", "/etc/passwd", "{type: Patches, patch: 4}"), ("AudioFolder", "/dev/zero", "LogMel"))),
]  # fmt: skip

GROUPS: dict[str, list[tuple[str, bytes]]] = {
    group: [(name, content if isinstance(content, bytes) else content.encode()) for name, content in cases]
    for group, cases in (
        ("names", _names), ("keys", _keys), ("YAML", _yaml), ("bytes", _bytes), ("numbers", _numbers),
        ("places", _places),
    )
}  # fmt: skip
CASES = [case for cases in GROUPS.values() for case in cases]
"""(name, content of the file) of every case."""
