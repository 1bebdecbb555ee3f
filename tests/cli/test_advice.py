"""What is advised exists: every command, flag, key, component and page that a string of the package names."""

import pytest

from tests.cli import advice
from tests.cli.advice import ROOT, faults, options, texts, texts_of_python


@pytest.mark.slow
def test_every_command_flag_key_and_page_that_the_code_advises_exists():
    found = [f"{text.path}:{text.line}: {fault}" for text in texts() for fault in faults(text)]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_the_commands_that_users_meet_most_are_among_what_is_read():
    quoted = [text.text.replace("\0", "…") for text in texts() if text.is_quoted]
    assert {"seqkit fit --resume …", "seqkit evaluate …", "seqkit report …"} <= set(quoted)


def of_module(path, line):
    return list(texts_of_python(ROOT / "seqkit" / path, f"say({line})\n"))


WRONG = {
    'f"go on with: seqkit fitt --resume x"': "no command fitt",
    '"write it with `seqkit reprot RUN`"': "no command reprot",
    'f"go on with: seqkit fit --resum x"': "fit takes --resum",
    '"give --trainer.max_stepz 7"': "takes --trainer.max_stepz",
    '"give --data.windw 7"': "takes --data.windw",
    '"give --model.backbone Transfomer"': "takes --model.backbone Transfomer",
    '"add --forse"': "takes --forse",
    '"use seqkit predict --trainer.max_steps 1"': "predict takes --trainer.max_steps",
    '"use seqkit generate RUN --embed"': "generate takes --embed",
    '"try: seqkit fit text/charlm"': "no recipe text/charlm",
    '"see docs/nosuch.md"': "no page docs/nosuch.md",
    'f"go on with: seqkit fit --resume {folder}"': "quotes them",
    'command("fit", "--resum", folder)': "fit takes --resum",
}


@pytest.mark.parametrize("line", WRONG)
def test_advice_that_does_not_exist_is_found(line):
    found = [fault for text in of_module("runs/run.py", line) for fault in faults(text)]
    assert len(found) == 1
    assert WRONG[line] in found[0]


def test_a_command_advises_no_flag_of_another_one():
    (text,) = of_module("cli/generate.py", '"give fewer: --max-batch-size 7"')
    assert "generate takes --max-batch-size" in next(faults(text))
    (text,) = of_module("cli/serve.py", '"give fewer: --max-batch-size 7"')
    assert not list(faults(text))


def test_what_commands_of_a_trained_run_show_advises_a_key_for_training_alone():
    for words, count in (("give", 1), ("train with", 0)):
        (text,) = of_module("tokenizers/image.py", f'"{words} --tokenizer.channels 3"')
        assert len(list(faults(text))) == count


RIGHT = [
    'command("fit", "--resume", folder)',
    '"give --trainer.max_steps or --tasks.image.data.limit 100"',
    '"give --data.skip_bad 3, --model.objective Masked, or --tokenizer.parts.text.unknown unk"',
    'f"give --data.{name} {value}, or --tokenizer NAME"',
    '"what seqkit wrote, --help, and its commands (docs/runs.md)"',
    '"fetch it with `hf download NAME --local-dir FOLDER`"',
]


@pytest.mark.parametrize("line", RIGHT)
def test_advice_that_exists_is_no_fault(line):
    assert not [fault for text in of_module("runs/run.py", line) for fault in faults(text)]


@pytest.mark.slow
def test_a_flag_that_is_renamed_leaves_advice_that_is_found(monkeypatch):
    advised = [text for text in texts() if "--resume" in text.text]
    assert not [fault for text in advised for fault in faults(text)]
    renamed = {
        verb: (options(verb)[0] - {"--resume"}, options(verb)[1]) for verb in advice.COMMANDS
    }
    monkeypatch.setattr(advice, "options", renamed.__getitem__)
    assert len([fault for text in advised for fault in faults(text)]) > 5
