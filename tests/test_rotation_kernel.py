"""A batch turned by phases that it shares: values, gradients of every kind, memory."""

import pytest
import torch

import stringlib
from stringlib.kernels import fast_rotation
from stringlib.kernels.fast_rotation import PIECES, SHORT
from stringlib.kernels.rotation import rotate_pairs

SHAPES = [
    ((3, 2, 3, 2), (2, 3, 2)),  # heads of their own
    ((3, 2, 3, 2), (3, 2)),
    ((3, 2, 3, 2), (1, 3, 2)),  # one set for all heads
    ((3, 2, 3, 2), (3, 1, 3, 2)),  # positions of their own
    ((2, 1, 3, 2), (1, 4, 3, 2)),  # both broadcast
    ((2, 3), (3, 2, 3)),  # more positions than vectors
    ((PIECES + 4, 2), (2,)),  # the last piece is shorter
    ((3,), (3,)),
    ((0, 2, 3), (2, 3)),
    ((5, 0, 3), (1, 3)),
]


def random(*shape):
    return torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(7))


def turned(x, phases):
    """The kernel as what it is on complex numbers, a product."""
    pairs = rotate_pairs(torch.view_as_real(x).flatten(-2), torch.view_as_real(phases))
    return torch.view_as_complex(pairs.unflatten(-1, (-1, 2)))


def turned_halves(x, phases):
    """The same in the other layout: real parts first, then imaginary ones."""
    halves = rotate_pairs(torch.cat([x.real, x.imag], -1), torch.view_as_real(phases), "half")
    return torch.complex(*halves.chunk(2, -1))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, on first use
@pytest.mark.parametrize(
    ("turned", "short"), [(turned, SHORT), (turned_halves, SHORT), (turned_halves, -1)]
)
@pytest.mark.parametrize(("x_shape", "shape"), SHAPES)
def test_gradients_of_every_kind(x_shape, shape, turned, short, monkeypatch):
    """First and second, backward and forward, one at a time and many at once, few or many calls."""
    monkeypatch.setattr(fast_rotation, "SHORT", short)
    x, shared = random(*x_shape).requires_grad_(), random(*shape).requires_grad_()
    assert torch.allclose(turned(x, shared), x * shared, rtol=0, atol=1e-15)
    options = {"check_forward_ad": True, "check_batched_grad": True}
    assert torch.autograd.gradcheck(turned, (x, shared), **options)
    options = {"check_fwd_over_rev": True, "check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradgradcheck(turned, (x, shared), **options)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("short", [SHORT, -1])
@pytest.mark.parametrize(("x_shape", "shape"), SHAPES)
def test_the_fast_rotation_is_the_plain_one(x_shape, shape, short, layout, monkeypatch):
    """The plain form is what a compiler gets; values and gradients of the fast one are the same."""
    monkeypatch.setattr(fast_rotation, "SHORT", short)
    x, phases = (torch.view_as_real(random(*s)) for s in (x_shape, shape))
    leaves = [x.flatten(-2).requires_grad_(), phases.requires_grad_()]
    found = []
    for plain in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(torch.compiler, "is_compiling", lambda plain=plain: plain)
            rotated = rotate_pairs(*leaves, layout)
            found.append([rotated, *torch.autograd.grad(rotated.pow(3).sum(), leaves)])
            found.append([rotate_pairs(*(leaf.detach() for leaf in leaves), layout)])
    for plain, fast in zip(found[0] + found[1], found[2] + found[3], strict=True):
        assert torch.allclose(fast, plain, rtol=1e-13, atol=1e-14)


def test_gradients_per_sample():
    encoder = stringlib.MixedRoPE(8, 2, heads=3).double()
    q, positions = random(4, 3, 5, 8).real, random(5, 2).real

    def loss(omega, q):
        return torch.func.functional_call(encoder, {"omega": omega}, (q, q, positions))[0].pow(3)

    omega = encoder.omega.detach()
    each = torch.func.vmap(torch.func.grad(lambda *a: loss(*a).sum()), (None, 0))(omega, q)
    for got, one in zip(each, q, strict=True):
        want = torch.autograd.functional.jacobian(lambda w, one=one: loss(w, one).sum(), omega)
        assert torch.allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [((3, 6, 1, 8), (3, 2, 1, 8)), ((4, 5, 8), (4, 5, 8)), ((3, 6, 1, 8), (1, 2, 1, 8))],
)
def test_few_queries_and_keys_turn_together_as_they_do_alone(layout, queries, keys, monkeypatch):
    encoder = stringlib.RoPE(8, layout=layout)
    torch.manual_seed(0)
    inputs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in (queries, keys)]
    upstream = [torch.randn(s, dtype=torch.float64) for s in (queries, keys)]
    positions = 5 + torch.arange(queries[-2])[:, None]
    found = []
    for short in (SHORT, -1):
        monkeypatch.setattr(fast_rotation, "SHORT", short)
        encoded = encoder(*inputs, positions)
        assert [x.shape for x in encoded] == [queries, keys]
        found.append([*encoded, *torch.autograd.grad(encoded, inputs, upstream)])
    for together, alone in zip(*found, strict=True):
        assert torch.allclose(together, alone, rtol=0, atol=1e-15)
