"""FromFile: the ids of the library, without its padding; the state is enough; what cannot be read is refused."""

import json
import pickle
import sys
from pathlib import Path

import pytest
from tokenizer_files import KINDS, TEXT, byte_level, saved, unigram, wordpiece
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close

from seqkit import fit, load
from seqkit.config import build, complete
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenSpec
from seqkit.testing import check_tokenizer
from seqkit.tokenizers import BPE, FromFile
from seqkit.tokenizers import from_file as module

TEXTS = ["to be", "that question, to end troubles", "a sea"]


@pytest.fixture(params=KINDS)
def path(request, tmp_path):
    return saved(KINDS[request.param](), tmp_path)


def of(made, folder, **settings):
    return FromFile(saved(made, folder), **settings)


@pytest.mark.parametrize("special_tokens", [True, False])
def test_ids_and_their_number_are_the_librarys(path, special_tokens):
    theirs = Tokenizer.from_file(path)
    theirs.no_padding()
    theirs.no_truncation()
    ours = FromFile(path, special_tokens)
    assert ours.spec.vocab_size == theirs.get_vocab_size()
    for text in (*TEXTS, *TEXT[:2], "  \u00c9t\u00e9 zzz 7 <unk> [SEP] <|endoftext|>", "x " * 999):
        expected = theirs.encode(text, add_special_tokens=special_tokens).ids
        assert ours.encode(text).content.tolist() == expected
        assert ours.encode(text).content.tolist() == expected


def test_padding_truncation_and_dropout_of_the_file_are_left_out(tmp_path):
    tokenizer = of(wordpiece(), tmp_path)
    assert len(Tokenizer.from_file(tokenizer.path).encode("to be").ids) == 31
    assert len(tokenizer.encode("to be")) < 9
    assert len(tokenizer.encode("to be " * 20)) > 31
    made = byte_level()
    made.model.dropout = 0.5
    dropped = of(made, tmp_path)
    assert len({tuple(Tokenizer.from_file(dropped.path).encode(TEXT[0]).ids) for _ in range(9)}) > 1
    expected = of(byte_level(), tmp_path).encode(TEXT[0])
    assert all(dropped.encode(TEXT[0]).equals(expected) for _ in range(9))


def test_every_law_of_tokenizers_is_kept(path):
    check_tokenizer(FromFile(path), TEXTS, bad=["", 7, "a\udc00"], other_process=False)
    check_tokenizer(FromFile(path, special_tokens=False), TEXTS, other_process=False, quick=True)


def test_the_state_is_enough_when_the_file_is_gone(path):
    tokenizer = FromFile(path)
    assert tokenizer.state() == {"tokenizer.json": Path(path).read_text(encoding="utf-8")}
    copies = [pickle.loads(pickle.dumps(FromFile(path)))]
    Path(path).unlink()
    copies.append(FromFile(path))
    copies[-1].load_state(json.loads(json.dumps(tokenizer.state())))
    for one in copies:
        assert one.spec == tokenizer.spec
        assert one.state() == tokenizer.state()
        assert_close(one.encode(TEXT[0]).content, tokenizer.encode(TEXT[0]).content)
    with pytest.raises(DataError, match=r"tokenizer\.json cannot be read"):
        FromFile(path).state()


def test_a_loaded_state_is_used_whatever_is_in_the_file_now(tmp_path):
    tokenizer = of(byte_level(), tmp_path)
    state = tokenizer.state()
    later = of(unigram(), tmp_path)
    later.load_state(state)
    assert later.encode("to be").equals(tokenizer.encode("to be"))


def test_a_folder_stands_for_the_file_in_it(path):
    assert FromFile(str(Path(path).parent)).encode("to be").equals(FromFile(path).encode("to be"))


def test_decode_takes_off_what_is_put_around_a_text_and_nothing_else(tmp_path):
    tokenizer = of(wordpiece(), tmp_path)
    ids = tokenizer.encode("that sea").content.tolist()
    cls, sep = ids[0], ids[-1]
    assert (
        tokenizer.decode(ids)
        == tokenizer.decode(ids[1:])
        == tokenizer.decode(ids[:-1])
        == "that sea"
    )
    assert [tokenizer.decode([i]) for i in (cls, sep)] == ["[CLS]", "[SEP]"]
    assert tokenizer.decode([cls, sep]) == "[CLS] [SEP]"
    assert tokenizer.decode([*ids, *ids]) == "that sea [SEP] [CLS] that sea"
    bare = FromFile(tokenizer.path, special_tokens=False)
    assert bare.decode(ids) == "[CLS] that sea [SEP]"
    assert bare.encode("that sea").content.tolist() == ids[1:-1]
    text = "  To be,\n\u00c9t\u00e9 \U0001f600"
    for settings in ({}, {"post_processor": True}):
        exact = of(byte_level(**settings), tmp_path)
        assert exact.decode(exact.encode(text)) == text


@pytest.mark.parametrize(
    ("kind", "name"), [("wordpiece", "[UNK]"), ("unigram", "<unk>"), ("byte_level", None)]
)
def test_the_id_of_what_is_unknown_is_known(kind, name, tmp_path):
    tokenizer = of(KINDS[kind](), tmp_path)
    assert tokenizer.unknown_id == (
        None if name is None else Tokenizer.from_file(tokenizer.path).token_to_id(name)
    )
    if name is not None:
        assert tokenizer.unknown_id in tokenizer.encode("\u4e16").content.tolist()


def test_texts_without_tokens_and_ids_beyond_the_vocabulary_are_refused(tmp_path):
    tokenizer = of(wordpiece(), tmp_path, special_tokens=False)
    with pytest.raises(DataError, match="3 characters"):
        tokenizer.encode(" \n ")
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"id {wrong} is outside the vocabulary"):
            tokenizer.decode([wrong])
    assert FromFile(tokenizer.path).encode(" ").content.tolist() == [2, 3]  # [CLS] [SEP], as theirs


def test_a_text_that_the_library_refuses_is_a_fault_of_the_data(tmp_path):
    made = json.loads(unigram().to_str())
    made["model"]["unk_id"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises(DataError, match="unk_id"):
        FromFile(str(tmp_path)).encode("\u4e16")


def changed(made, **changes):
    parsed = json.loads(made.to_str())
    for key, value in changes.items():
        place, _, name = key.rpartition("__")
        (parsed[place] if place else parsed)[name] = value
    return json.dumps(parsed)


CLS = processors.TemplateProcessing(single="$A [CLS]", special_tokens=[("[CLS]", 4_000_000_000)])


def with_id_outside():
    made = wordpiece()
    made.post_processor = CLS
    return made.to_str()


FAULTS = {
    "empty": (lambda: "", "it is damaged, or no JSON"),
    "cut off": (lambda: wordpiece().to_str()[:-99], "it is damaged, or no JSON"),
    "a key twice": (lambda: '{"model": {}, "model": {}}', "the key 'model' is given twice"),
    "nested": (lambda: '{"model": ' + "[" * 100_000, "nested too deeply|no JSON"),
    "no text": (lambda: "\xff\xfe\x00", "is not UTF-8"),
    "a list": (lambda: "[1, 2]", "it is JSON, but no tokenizer.json"),
    "another JSON": (
        lambda: '{"model_type": "bert", "vocab_size": 7}',
        "it is JSON, but no tokenizer.json",
    ),
    "a model's name": (lambda: '{"model": "bert"}', "it is JSON, but no tokenizer.json"),
    "a model without vocabulary": (
        lambda: '{"model": {"type": "BPE"}}',
        "the library tokenizers reads: ",
    ),
    "an unknown step": (
        lambda: changed(wordpiece(), normalizer={"type": "x\ny"}),
        "the library tokenizers reads: ",
    ),
    "an empty vocabulary": (
        lambda: Tokenizer.from_str(NOTHING).to_str(),
        "its vocabulary is empty",
    ),
    "an id of four billions": (
        lambda: changed(wordpiece(), model__vocab={"[UNK]": 0, "a": 4_000_000_000}),
        "numbers [0-9]+ tokens up to 4,000,000,000",
    ),
    "an id outside": (with_id_outside, "puts id 4,000,000,000 around a text"),
}
NOTHING = (
    '{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}'
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_or_damaged_file_is_refused_in_a_line_with_its_path(fault, tmp_path, capfd):
    content, reason = FAULTS[fault]
    text = content()
    path = tmp_path / "tokenizer.json"
    path.write_bytes(text.encode("latin-1" if fault == "no text" else "utf-8"))
    tokenizer = FromFile(str(path))
    for use in (lambda: tokenizer.spec, lambda: tokenizer.encode("to be"), tokenizer.state):
        with pytest.raises(DataError, match=reason) as caught:
            use()
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600
    if fault != "no text":
        with pytest.raises(ValueError, match=reason):
            FromFile(str(path)).load_state({"tokenizer.json": text})
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_none_or_too_large_is_refused_in_a_line_with_its_path(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"/dev/zero is a device"):
        _ = FromFile("/dev/zero").spec
    with pytest.raises(DataError, match=r"gone\.json"):
        _ = FromFile(str(tmp_path / "gone.json")).spec
    with pytest.raises(DataError, match=r"cannot be read"):
        _ = FromFile(str(tmp_path)).spec
    with pytest.raises(DataError, match="cannot be read"):
        _ = FromFile("a\0b").spec
    path = saved(wordpiece(), tmp_path)
    state = FromFile(path).state()
    monkeypatch.setattr(module, "MAX_JSON_BYTES", 999)
    with pytest.raises(DataError, match="999 bytes"):
        _ = FromFile(path).spec
    with pytest.raises(ValueError, match="999 are the most"):
        FromFile(path).load_state(state)


@pytest.mark.parametrize(
    "state", [{"vocab": {}}, {"tokenizer.json": 7}, {"tokenizer.json": "{}", "more": 1}]
)
def test_another_state_is_refused(state, tmp_path):
    with pytest.raises(ValueError, match="state of FromFile"):
        FromFile(str(tmp_path)).load_state(state)
    FromFile(str(tmp_path)).load_state({})


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_of_another_model_is_no_state_of_bpe_which_names_what_reads_it(kind):
    with pytest.raises(ValueError, match="FromFile"):
        BPE().load_state(json.loads(KINDS[kind]().to_str()))


def test_the_state_of_bpe_is_such_a_file(tmp_path):
    bpe = BPE(271)
    bpe.fit(TEXT)
    (tmp_path / "tokenizer.json").write_text(json.dumps(bpe.state()), encoding="utf-8")
    assert FromFile(str(tmp_path)).encode(TEXT[0]).equals(bpe.encode(TEXT[0]))


def test_a_missing_library_is_an_error_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r'FromFile needs .*pip install "seqkit\[text\]"'):
        FromFile("tokenizer.json")


def test_a_configuration_names_the_file(tmp_path):
    path = saved(wordpiece(), tmp_path)
    given = {"tokenizer": {"type": "FromFile", "path": path}}
    config = complete("text/classify", "debug", given)
    defaults = {"special_tokens": True, "num_ids": None, "token_types": 0}
    defaults |= {"end_id": None, "max_tokens": None, "pad_id": None}
    assert config["tokenizer"] == {"type": "FromFile", "path": path, **defaults}
    assert build(config).tokenizer.encode("to be").equals(FromFile(path).encode("to be"))
    with pytest.raises(UsageError, match="path"):
        complete("text/classify", "debug", {"tokenizer": "FromFile"})


@pytest.mark.slow
def test_a_run_folder_needs_the_file_no_more(tmp_path):
    path = saved(wordpiece(), tmp_path)
    run = tmp_path / "run"
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"to be {i % 9},{'ab'[i % 2]}\n" for i in range(40)))
    given = {"tokenizer": {"type": "FromFile", "path": path}, "data": str(table)}
    fit("text/classify", given, preset="debug", out=run, classical="off", report=False)
    Path(path).unlink()
    run = run.rename(tmp_path / "moved")
    trained = load(run)
    assert trained.predict(["to be, or not to be"])
    assert trained.tokenizer.encode("to be").content[0] == 2


def bert(folder):
    """A tokenizer of words as BERT has it: [CLS] a [SEP], and [CLS] a [SEP] b [SEP] of other token types."""
    words = Tokenizer(
        models.WordLevel(
            {word: i for i, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "a", "b", "c"])}, "[UNK]"
        )
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    path = folder / "tokenizer.json"
    words.save(str(path))
    return FromFile(str(path), token_types=2, num_ids=8)


def test_token_types_are_the_second_axis_of_the_positions(tmp_path):
    tokens = bert(tmp_path).encode(["a b", "c"])
    assert tokens.content.tolist() == [1, 3, 4, 2, 5, 2]
    assert tokens.positions.tolist() == [[0, 0], [1, 0], [2, 0], [3, 0], [4, 1], [5, 1]]
    assert bert(tmp_path).encode("c a").positions.tolist() == [[0, 0], [1, 0], [2, 0], [3, 0]]
    assert bert(tmp_path).spec == TokenSpec(vocab_size=8, num_axes=2)


def test_more_texts_than_token_types_are_refused(tmp_path):
    path = bert(tmp_path).path
    with pytest.raises(DataError, match="2 texts"):
        FromFile(path, token_types=1).encode(["a", "b"])
    with pytest.raises(DataError, match="3 texts"):
        FromFile(path, token_types=2).encode(["a", "b", "c"])
    with pytest.raises(DataError, match="str"):
        FromFile(path).encode(["a", "b"])


def test_a_file_of_more_ids_than_the_model_has_is_refused(tmp_path):
    path = bert(tmp_path).path
    with pytest.raises(DataError, match="ids up to 5"):
        FromFile(path, num_ids=5).encode("a")


def test_a_text_is_cut_before_the_special_tokens_that_end_it(tmp_path):
    tokenizer = bert(tmp_path)
    tokens = tokenizer.cut(tokenizer.encode("a b c a"), 4)
    assert tokens.content.tolist() == [1, 3, 4, 2]
    assert tokens.positions[:, 0].tolist() == [0, 1, 2, 3]
    whole = tokenizer.encode("a")
    assert tokenizer.cut(whole, 3) is whole
