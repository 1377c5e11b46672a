"""What no call can mean is one error of this package's, which names the argument, whatever Python makes of it on the way."""

import numpy as np
import pytest

import dodona
import dodona.ptx

LINE = "rmsnorm T=2 H=8"


@pytest.mark.parametrize(
    "call, argument",
    [
        (lambda: dodona.check(np.zeros(3)), "line"),
        (lambda: dodona.gen(LINE + "\0 --seed 7"), "line"),
        (lambda: dodona.load(5), "path"),
        (lambda: dodona.load("a\0b"), "path"),
        (lambda: dodona.gen(LINE).save(None), "path"),
        (lambda: dodona.schema(3), "op"),
        (lambda: dodona.prepare(True), "op"),
        (lambda: dodona.silu_and_mul(np.zeros((2, 8), np.float32), mode=np.zeros(2)), "mode"),
        (lambda: dodona.silu_and_mul(np.zeros((2, 8), np.float32), gpu=[]), "gpu"),
        (lambda: dodona.rmsnorm(np.zeros((2, 8), np.float32), np.ones(8, np.float32), weight_order="fused\0x"), "weight_order"),
        (lambda: dodona.same_bits(np.zeros(2), np.zeros(2), names=[1, 2]), "names"),
        (lambda: dodona.same_bits(2**63), "output"),
        (lambda: dodona.check(LINE, mode=np.zeros((2, 2))), "mode"),
        (lambda: dodona.check(LINE, explain="soon"), "explain"),
        (lambda: dodona.check(LINE, explain=np.zeros((2, 2))), "explain"),
        (lambda: dodona.check(LINE, sample="few"), "sample"),
        (lambda: dodona.check(LINE, sample=-1), "sample"),
        (lambda: dodona.check(LINE, sample=1, sample_seed=-1), "sample_seed"),
        (lambda: dodona.whose("linear T=2 N=8 K=256", seconds=[]), "seconds"),
        (lambda: dodona.ptx.Module("a\0b"), "source"),
        (lambda: dodona.ptx.Module(3), "source"),
        (lambda: dodona.gather(2, 1), "parts"),
        (lambda: dodona.gather(2, {0: 1}), "parts"),
        (lambda: dodona.layer(preset="tiny", kv_len=object()), "kv_len"),
        (lambda: dodona.generate(5), "prompt_ids"),
        (lambda: dodona.generate([1.5]), "prompt_ids"),
        (lambda: dodona.generate([1], temperature=float("nan")), "temperature"),
        (lambda: dodona.generate([1], state=object()), "state"),
        (lambda: dodona.Grader(3).grade("kernel.py:f"), "claim"),
        (lambda: dodona.Grader(LINE, calls=object()).grade("kernel.py:f"), "calls"),
    ],
)
def test_what_cannot_be_meant_is_one_error_that_names_the_argument(call, argument):
    with pytest.raises(dodona.Error) as refused:
        call()
    assert refused.value.argument == argument
    assert argument in str(refused.value)


def test_numbers_and_lists_of_numpy_are_options_as_pythons_are():
    assert dodona.generate(np.array([1, 2]), max_new=np.int64(2)).tokens == dodona.generate([1, 2], max_new=2).tokens
    assert dodona.layer(preset="tiny", kv_len=np.array([5, 6]), batch=np.int32(2)).digest == dodona.layer(preset="tiny", kv_len=[5, 6], batch=2).digest
