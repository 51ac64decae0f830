"""What a server says of the experts that it used: believed only if it fits the model."""

import base64
import io

import numpy as np
import pytest

from jax_t2sql.sampling.vllm_experts import ExpertShape, read_experts

SHAPE = ExpertShape(before=1, layers=2, chosen=3, count=8)


def field(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return base64.b64encode(buffer.getvalue()).decode()


def experts(tokens=5, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 8, (tokens, 3, 3)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_the_layers_that_have_experts_are_kept(dtype):
    record = read_experts(field(experts(dtype=dtype)), SHAPE, tokens=6)
    assert (len(record), record.layers, record.chosen) == (5, 2, 3)
    found = np.frombuffer(record.data, "<u2").reshape(5, 2, 3)
    np.testing.assert_array_equal(found, experts()[:, 1:])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "start vLLM with --enable-return-routed-experts"),
        ("no base64!", "cannot be read"),
        (base64.b64encode(b"no array").decode(), "cannot be read"),
        (7, "cannot be read"),
        (field(experts(tokens=6)), "another model"),
        (field(experts()[:, :2]), "another model"),
        (field(experts().astype(float)), "another model"),
        (field(experts() + 5), r"experts 5\.\.12, the model has 0\.\.7"),
    ],
)
def test_what_does_not_fit_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        read_experts(value, SHAPE, tokens=6)
