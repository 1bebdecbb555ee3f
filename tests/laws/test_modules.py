"""`check` of any module, and the decorator `laws`: a fault is named, and what is sound passes."""

import pytest
import torch
from laws.faulty_backbones import ScalesInTraining
from torch import nn

from seqkit.backbones import GRU
from seqkit.nn.attention.multi_head import ScaledDotProductAttention
from seqkit.nn.position.absolute import Sinusoidal
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import BrokenLawsError, check, laws
from seqkit.tokenizers import Bytes

DIM = 8
pytest_plugins = ["pytester"]


class Mixer(nn.Module):
    """The mean of the tokens so far, through a linear layer: causal, without a fault."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(DIM, DIM)

    def forward(self, x, valid):
        x = self.linear(x) * valid[..., None]
        return x + x.cumsum(dim=1) / valid.cumsum(dim=1).clamp(min=1)[..., None]


class ReadsPadding(Mixer):
    def forward(self, x, valid):
        return super().forward(x, torch.ones_like(valid)) + x.mean(dim=1, keepdim=True)


class MixesExamples(Mixer):
    def forward(self, x, valid):
        return super().forward(x, valid) + (x * valid[..., None]).sum(dim=(0, 1))


class LooksAhead(Mixer):
    def forward(self, x, valid):
        return super().forward(
            nn.functional.pad((x * valid[..., None])[:, 1:], [0, 0, 0, 1]), valid
        )


class HasAnUnusedLayer(Mixer):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(DIM, DIM)


class DrawsInEval(Mixer):
    def forward(self, x, valid):
        return super().forward(nn.functional.dropout(x, 0.5, training=True), valid)


class HidesALayer(Mixer):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(DIM, DIM).double()]

    def forward(self, x, valid):
        return self.layers[0](super().forward(x, valid).double())


class LosesItsScale(Mixer):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(DIM))

    def forward(self, x, valid):
        return super().forward(x, valid) * self.scale

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[f"{prefix}scale"]


class Prints(Mixer):
    def forward(self, x, valid):
        print(x.shape)
        return super().forward(x, valid)


class DoublesItsWidth(Mixer):
    def forward(self, x, valid):
        return super().forward(x, valid).repeat(1, 1, 2)


@pytest.mark.parametrize(
    ("faulty", "sentence"),
    [
        (ReadsPadding, "padding_changes_nothing: it reads padding"),
        (MixesExamples, "batch_mates_change_nothing: .*other examples"),
        (LooksAhead, "no_column_attends_to_the_future: a token attends to the future"),
        (
            HasAnUnusedLayer,
            "gradients_reach_every_parameter: unused.weight is never used: remove it, or ignore",
        ),
        (DrawsInEval, "is_deterministic: the same batch gives other"),
        (HidesALayer, "saves_all_weights: weights in layers are outside of state_dict"),
        (LosesItsScale, "saves_all_weights: it raises RuntimeError: .*scale"),
        (Prints, "leaves_input_and_process_alone: forward prints"),
        (DoublesItsWidth, r"gives_hidden_states_of_its_width: hidden states are \[3, 8, 16\], not"),
    ],
)
def test_a_fault_of_a_module_is_named(faulty, sentence):
    with pytest.raises(AssertionError, match=f"(?m)^{faulty.__name__}: {sentence}"):
        check(faulty(), dim=DIM, causal=True)


class ReadsPaddingAndPrints(Prints):
    def forward(self, x, valid):
        return super().forward(x, valid) + x.mean(dim=1, keepdim=True)


def test_all_broken_laws_are_named_in_one_call_with_their_sizes():
    with pytest.raises(BrokenLawsError) as raised:
        check(ReadsPaddingAndPrints(), dim=DIM)
    first, *lines = str(raised.value).splitlines()
    checked = raised.value.checked
    laws_of = {fault.law: fault for fault in checked.broken}
    assert first == f"ReadsPaddingAndPrints breaks {len(checked.broken)} laws:"
    assert len(lines) == len(checked.broken)
    assert laws_of["leaves_input_and_process_alone"].size is None
    assert 0.001 < laws_of["padding_changes_nothing"].size < 2
    assert laws_of.keys().isdisjoint(law.__name__ for law in checked)
    assert {checked.left_out[name] for name in laws_of} == {"broken"}
    assert check(Mixer(), dim=DIM, quick=True).broken == ()


def test_an_error_that_every_law_meets_is_said_once():
    with pytest.raises(BrokenLawsError, match=r"^Mixer: .*: it raises RuntimeError") as raised:
        check(Mixer(), dim=DIM + 1)
    assert str(raised.value).count("\n") == 0
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_an_ignored_law_is_left_out_with_its_reason_and_an_unknown_one_is_refused():
    reason = {"leaves_input_and_process_alone": "it shows what it gets"}
    checked = check(Prints(), dim=DIM, causal=True, quick=True, ignore=reason)
    assert checked.left_out["leaves_input_and_process_alone"] == "it shows what it gets"
    checked = check(Prints(), dim=DIM, causal=True, quick=True, ignore=dict.fromkeys(reason, ""))
    assert checked.left_out["leaves_input_and_process_alone"] == ""
    with pytest.raises(ValueError, match=r"ignore has 'prints'"):
        check(Prints(), dim=DIM, quick=True, ignore={"prints": "a reason"} | reason)


def test_a_sound_module_stays_as_it_is_and_a_transformer_layer_passes():
    module = Mixer()
    before = module.linear.weight.clone()
    assert "no_column_attends_to_the_future" in repr(
        check(module, dim=DIM, causal=True, device="cpu")
    )
    assert module.linear.weight.dtype == torch.float32
    assert module.linear.weight.equal(before)
    layer = nn.TransformerEncoderLayer(DIM, 2, dropout=0.0, batch_first=True)
    call = {"call": lambda layer, x, valid: layer(x, src_key_padding_mask=~valid), "quick": True}
    left_out = check(layer, dim=DIM, **call).left_out
    assert left_out.pop("gradients_are_right") == "takes long"
    assert left_out.pop("any_batch_gives_the_same") == "takes long"
    assert left_out.keys() == {"padding_may_hold_nan"}
    with pytest.raises(ValueError, match="give dim="):
        check(layer, **call)


@pytest.mark.parametrize(
    ("subject", "settings", "law"),
    [
        (Bytes(), {"raws": ["to be", "or not"]}, "can_be_pickled"),
        (GRU, {"kinds": ["text"], "causal": [True]}, "caches_are_apart"),
        (GRU(24, depth=1, causal=True), {"kinds": ["text"]}, "caches_are_apart"),
        (ScaledDotProductAttention, {}, "weights_give_the_output"),
        (Sinusoidal, {}, "padding_changes_nothing"),
        (Rotary, {}, "gives_what_it_requires"),
    ],
)
def test_check_knows_every_kind_of_component(subject, settings, law):
    assert [each.__name__ for each in check(subject, only=[law], **settings)] == [law]


@pytest.mark.slow
def test_a_faulty_backbone_is_named_by_check_and_what_is_no_component_is_refused():
    with pytest.raises(
        AssertionError, match=r"ScalesInTraining\(causal=True\): training_equals_eval"
    ):
        check(ScalesInTraining(24, causal=True), kinds=["text"])
    with pytest.raises(TypeError, match="7 is no tokenizer"):
        check(7)


@laws(dim=DIM, causal=True)
class TestMixer:
    def subject(self):
        return Mixer()


@laws(raws=["to be", "or not"], other_process=False, quick=True)
class TestBytes:
    def subject(self):
        return Bytes()


@pytest.mark.slow
def test_each_law_is_a_test_and_an_expected_failure_is_strict(pytester):
    pytester.makepyfile(
        """
        from laws.test_modules import DIM, LooksAhead, Mixer
        from seqkit.testing import laws

        @laws(dim=DIM, causal=True, expected_failures={"no_column_attends_to_the_future": "it predicts"})
        class TestSeer:
            def subject(self):
                return LooksAhead()

        @laws(dim=DIM, causal=True, expected_failures={"no_column_attends_to_the_future": "it predicts"})
        class TestSound:
            def subject(self):
                return Mixer()

        @laws(dim=DIM, causal=True)
        class TestLeaking:
            def subject(self):
                return LooksAhead()
        """
    )
    result = pytester.runpytest("-p", "no:randomly")
    result.assert_outcomes(passed=61, xfailed=1, failed=2, skipped=5)
    result.stdout.fnmatch_lines(["*XPASS(strict)*it predicts*"])
    with pytest.raises(ValueError, match="expects no_such_law to fail"):
        laws(dim=DIM, expected_failures={"no_such_law": "a reason"})(TestMixer)
