"""Weights of a model in a record: half precision, and read by a model made in the same way."""

import base64

import pytest
import torch

from lab.weights import packed, unpack
from stringlib import LanguageModel

OPTIONS = {"attention": "favor", "encoder": "rope", "num_features": 8}


def model(seed: int, dim: int = 16, tied: bool = True) -> LanguageModel:
    torch.manual_seed(seed)
    return LanguageModel(11, dim, 1, 2, tied=tied, **OPTIONS).eval()


def test_a_model_comes_back_in_half_precision():
    old, new = model(0), model(1)
    tokens = torch.arange(7)[None]
    assert (old(tokens) - new(tokens)).abs().max() > 0.1
    unpack(new, packed(old))
    for name, there in old.state_dict().items():
        assert torch.equal(new.state_dict()[name], there.half().to(there.dtype)), name
    torch.testing.assert_close(old(tokens), new(tokens), atol=0.02, rtol=0)


def test_an_embedding_that_is_also_the_readout_is_written_once():
    tied, new, untied = model(0), model(1), model(0, tied=False)
    numbers = [len(base64.b64decode(packed(one))) // 2 for one in (tied, untied)]
    assert numbers[1] - numbers[0] == tied.embed.weight.numel()
    unpack(new, packed(tied))
    assert new.readout.weight is new.embed.weight


def test_weights_of_another_model_are_refused():
    with pytest.raises(ValueError, match=r"text must contain \d+ numbers .*, got \d+"):
        unpack(model(0, dim=32), packed(model(0)))
