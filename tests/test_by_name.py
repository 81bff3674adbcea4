"""Arguments after the coordinates have names; for one version a place will do, with a warning."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import stringlib
from stringlib import RotaryEncoder, encoders

# what each took by its place in version 0.1, and values for all
PLACES = {
    stringlib.RoPE: ((8,), {"base": 50.0, "heads": 3, "layout": "half"}),
    stringlib.AxialRoPE: ((8, 2), {"base": 50.0, "heads": 3}),
    stringlib.MixedRoPE: ((8, 2), {"heads": 3, "base": 50.0}),
    stringlib.ReflectionSTRING: ((8, 2), {"heads": 3}),
    stringlib.CirculantSTRING: ((8, 2), {"heads": 3, "block_size": 4}),
    stringlib.CayleySTRING: ((8, 2), {"heads": 3, "density": 0.5}),
    stringlib.STRING: ((torch.ones(2, 3, 1), None), {"head_dim": 7, "layout": "half"}),
    stringlib.RotaryEncoder: ((8, 2), {"heads": 3, "layout": "half"}),
    stringlib.T5Bias: ((2,), {"num_buckets": 8, "max_distance": 9, "bidirectional": False}),
    stringlib.Sinusoidal: ((8,), {"base": 50.0}),
    stringlib.make_encoder: (("mixed", 8, 2), {"heads": 3}),
    encoders.registry.make_bias: (("t5", 2), {"causal": True}),
}


@pytest.mark.parametrize(("make", "given"), PLACES.items(), ids=[make.__name__ for make in PLACES])
def test_a_place_still_does_and_says_how_to_write_it(make, given) -> None:
    places, names = given
    for count in range(1, len(names) + 1):
        late = dict([*names.items()][:count])
        torch.manual_seed(0)
        wanted = make(*places, **late)
        torch.manual_seed(0)
        written = ", ".join(f"{name}={value!r}" for name, value in late.items())
        with pytest.warns(DeprecationWarning, match=f"^{', '.join(late)} must.* Write ") as told:
            made = make(*places, *late.values())
        assert str(told[0].message).endswith(f"Write {written}.")
        assert [warning.filename for warning in told] == [__file__]
        assert repr(made) == repr(wanted)
        for name, value in wanted.state_dict().items():
            assert torch.equal(value, made.state_dict()[name]), name
    with pytest.raises(TypeError, match="positional argument"):
        make(*places, *names.values(), 1)
    name, value = next(iter(names.items()))
    with (
        pytest.warns(DeprecationWarning, match="by name"),
        pytest.raises(TypeError, match=f"multiple .*'{name}'"),
    ):
        make(*places, value, **{name: value})


class Own(RotaryEncoder):
    """A user's encoder as it was written for version 0.1."""

    def __init__(self, head_dim: int, coord_dim: int, heads: int) -> None:
        super().__init__(head_dim, coord_dim, heads)
        self.omega = nn.Parameter(torch.ones(heads, head_dim // 2, coord_dim))

    def frequencies(self) -> torch.Tensor:
        return self.omega.double()


def test_an_encoder_of_a_user_goes_on() -> None:
    with pytest.warns(DeprecationWarning, match="Write heads=2") as told:
        own = Own(6, 2, 2)
    assert told[0].filename == __file__
    back = pickle.loads(pickle.dumps(own))
    assert (back.heads, back.layout) == (2, "interleaved")
    x, positions = torch.randn(2, 5, 6), torch.randn(5, 2)
    assert torch.equal(back.rotate(x, positions), own.rotate(x, positions))
