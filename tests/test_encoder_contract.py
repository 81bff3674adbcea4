"""What every encoder must hold, whatever its basis and frequencies."""

import copy
import inspect
import itertools
import math

import pytest
import torch

from stringlib import (
    STRING,
    AxialRoPE,
    CayleySTRING,
    CirculantSTRING,
    DenseSTRING,
    MixedRoPE,
    ReflectionSTRING,
    RoPE,
    checks,
)
from tests.encoder_cases import CASES, OWN, TWINS, heads_of, inputs, literal, make
from tests.refusals import refused

encoders = pytest.mark.parametrize("name", CASES)

KINDS = {
    RoPE: ({"head_dim": 8, "base": 10}, "RoPE(8, base=10, heads=1, layout='interleaved')"),
    AxialRoPE: (
        {"head_dim": 8, "coord_dim": 2, "base": 50},
        "AxialRoPE(8, 2, base=50, heads=1)",
    ),
    MixedRoPE: (
        {"head_dim": 8, "coord_dim": 2, "heads": 3},
        "MixedRoPE(head_dim=8, coord_dim=2, heads=3, base=10)",
    ),
    ReflectionSTRING: ({"head_dim": 8}, "ReflectionSTRING(head_dim=8, coord_dim=1, heads=1)"),
    CirculantSTRING: (
        {"head_dim": 16},
        "CirculantSTRING(head_dim=16, coord_dim=1, heads=1, block_size=16)",
    ),
    CayleySTRING: (
        {"head_dim": 8, "density": 0.5},
        "CayleySTRING(head_dim=8, coord_dim=1, heads=1, density=0.5)",
    ),
}
"""Class → arguments, and its repr."""
kinds = pytest.mark.parametrize("kind", KINDS)


def close(a, b, tolerance=1e-12):
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert torch.equal(a.isnan(), b.isnan())
    assert checks.largest_difference(a, b) <= tolerance


@encoders
@pytest.mark.proves("eq-relative")
def test_shifting_every_position_leaves_the_logits(name):
    encoder = make(name)
    q, k, positions = inputs(encoder)
    by_coordinate = torch.arange(1, encoder.coord_dim + 1) * 3.7
    for shift in (1, 17, 300, 0.37, -1234.5, by_coordinate):
        assert checks.translation_error(encoder, q, k, positions, shift) <= 1e-11, shift


@encoders
@pytest.mark.proves("eq-outer-basis")
def test_each_head_has_the_logits_of_the_literal_rotation(name):
    """Per head, not only summed over heads."""
    encoder = make(name)
    q, k, positions = inputs(encoder)
    both = checks.logits(encoder, q, k, positions)
    for head in range(heads_of(encoder)):
        own = head if encoder.heads > 1 else 0
        matrix = encoder.matrix(positions)[own]
        rotated_q = torch.einsum("nij,bnj->bni", matrix, q[:, head])
        rotated_k = torch.einsum("nij,bnj->bni", matrix, k[:, head])
        close(both[:, head], rotated_q @ rotated_k.mT, 1e-11)


@encoders
@pytest.mark.parametrize("largest", [1e3, 1e6])
def test_float32_logits_far_away(name, largest):
    """float32 vectors with exact angles keep the logits at every distance."""
    exact = make(name)
    q, k, positions = inputs(exact)
    positions = (positions / 30 * largest).round()
    encoder = make(name, torch.float32)
    exact.load_state_dict(encoder.state_dict())  # the same frequencies as float32 stores
    truth = checks.logits(exact, q, k, positions)
    q32, k32 = q.float(), k.float()
    got = checks.logits(encoder, q32, k32, positions.float())
    assert checks.relative_logit_error(got, truth, q, k) <= 1e-6
    shift = largest / 2
    assert checks.translation_error(encoder, q32, k32, positions.float(), shift) <= 1e-6


@encoders
@pytest.mark.proves("eq-rope-pair", "eq-grid-axial", "eq-grid-mixed", "eq-reflection-rotation")
@pytest.mark.proves("eq-circulant-generator", "eq-circulant-fft", "eq-cayley-before")
def test_equals_its_literal_twin(name):
    encoder = make(name)
    if name == "cayley-64-long":
        pytest.skip("the literal solve loses four digits, as the case is there to show")
    x, _, positions = inputs(encoder, seq=5, batch=())
    got = encoder.rotate(x, positions)
    for head in range(heads_of(encoder)):
        own = head if encoder.heads > 1 else 0
        expected = TWINS.get(type(encoder), literal)(encoder, own, x[head], positions)
        assert expected is None or checks.largest_difference(got[head], expected) <= 1e-11


@encoders
@pytest.mark.proves("eq-isometry")
def test_rotations_are_orthogonal_and_keep_norms(name):
    encoder = make(name)
    q, _, positions = inputs(encoder)
    assert checks.orthogonality_error(encoder.matrix(positions)) <= 1e-12
    close(encoder.rotate(q, positions).norm(dim=-1), q.norm(dim=-1))
    determinants = torch.linalg.det(encoder.matrix(positions))
    close(determinants, torch.ones_like(determinants), 1e-11)


@encoders
@pytest.mark.proves("eq-group-law")
def test_group_law_and_identity(name):
    encoder = make(name)
    _, _, a = inputs(encoder)
    b = a.flip(0) * 1.7 - 3
    assert checks.group_law_error(encoder, a, b) <= 1e-12
    still = encoder.matrix(torch.zeros(1, encoder.coord_dim).double())[:, 0]
    close(still, torch.eye(encoder.head_dim).double().expand_as(still))
    close(encoder.matrix(-a), encoder.matrix(a).mT)


@encoders
@pytest.mark.proves("eq-string-generators")
def test_generators_are_commuting_skew_and_exponentiate_to_the_rotation(name):
    encoder = make(name)
    _, _, positions = inputs(encoder)
    generators = encoder.generators()
    square = encoder.head_dim, encoder.head_dim
    assert generators.shape == (encoder.heads, encoder.coord_dim, *square)
    assert checks.skew_error(generators) <= 1e-13
    assert checks.commutator_error(generators) <= 1e-12
    assert checks.generator_error(encoder, positions) <= 1e-11


@encoders
@pytest.mark.proves("eq-string")
def test_basis_and_frequencies_rebuild_the_rotation(name):
    """R(r) = P RoPE(Ωr) Pᵀ, written out with trigonometric functions here."""
    encoder = make(name)
    _, _, positions = inputs(encoder)
    basis, frequencies = encoder.basis(), encoder.frequencies()
    pairs = frequencies.shape[1]
    assert basis.shape == (encoder.heads, encoder.head_dim, encoder.head_dim)
    assert frequencies.shape == (encoder.heads, pairs, encoder.coord_dim)
    assert checks.orthogonality_error(basis) <= 1e-12
    for head, (token, r) in itertools.product(range(encoder.heads), enumerate(positions)):
        plane = torch.eye(encoder.head_dim, dtype=torch.float64)
        for i, angle in enumerate(frequencies[head] @ r):
            a, b = (2 * i, 2 * i + 1) if encoder.layout == "interleaved" else (i, i + pairs)
            plane[a, a] = plane[b, b] = angle.cos()
            plane[a, b], plane[b, a] = -angle.sin(), angle.sin()
        rebuilt = basis[head] @ plane @ basis[head].T
        close(encoder.matrix(positions)[head, token], rebuilt, 1e-11)


@encoders
def test_rotate_is_the_matrix_and_forward_leaves_the_outer_basis_out(name):
    encoder = make(name)
    q, k, positions = inputs(encoder)
    matrix = encoder.matrix(positions)
    close(encoder.rotate(q, positions), (matrix @ q[..., None])[..., 0], 1e-12)
    encoded_q, encoded_k = encoder(q, k, positions)
    outer = encoder.basis()
    if isinstance(encoder, DenseSTRING):  # the literal definition leaves nothing out
        outer = torch.eye(encoder.head_dim, dtype=torch.float64).expand_as(outer)
    back = torch.einsum("hij,bhnj->bhni", outer.expand(heads_of(encoder), -1, -1), encoded_q)
    close(back, encoder.rotate(q, positions), 1e-12)
    close(encoded_k.norm(dim=-1), k.norm(dim=-1))


@encoders
@pytest.mark.proves("eq-fold")
def test_folding_leaves_the_logits_and_is_rope(name):
    encoder = make(name)
    rows = heads_of(encoder) * encoder.head_dim
    generator = torch.Generator().manual_seed(2)
    w_q, w_k = torch.randn(2, rows, 9, dtype=torch.float64, generator=generator)
    x = torch.randn(2, 6, 9, dtype=torch.float64, generator=generator)
    _, _, positions = inputs(encoder)
    assert checks.fold_error(encoder, x, w_q, w_k, positions) <= 1e-11
    # a bias folds as one more column of the weight does
    close(encoder.fold(w_q[:, 0]), encoder.fold(w_q)[:, 0])
    # one rounding, of the result
    for dtype in (torch.float32, torch.bfloat16):
        close(encoder.fold(w_q.to(dtype)), encoder.fold(w_q.to(dtype).double()).to(dtype), 0.0)


@encoders
def test_gradients(name):
    encoder = make(name)
    if encoder.head_dim > 16:
        pytest.skip("gradcheck is quadratic in the size; the small cases run the same code")
    q, k, positions = inputs(encoder, seq=3, batch=())
    names = [n for n, _ in encoder.named_parameters()]
    parameters = [p.detach().clone().requires_grad_() for p in encoder.parameters()]

    def encode(q, k, positions, *values):
        state = dict(zip(names, values, strict=True))
        return torch.func.functional_call(encoder, state, (q, k, positions))

    leaves = [t.requires_grad_() for t in (q, k, positions)]
    # every entry of small Jacobians; of large ones, and of second derivatives, a random product
    assert torch.autograd.gradcheck(encode, (*leaves, *parameters), fast_mode=encoder.head_dim > 5)
    assert torch.autograd.gradgradcheck(encode, (*leaves, *parameters), fast_mode=True)


@pytest.mark.parametrize("name", [n for n in CASES if "rfft" in n])
def test_gradient_of_the_real_fft_path_is_the_adjoint(name):
    """Too large for gradcheck: the map is orthogonal, so its gradient is its inverse."""
    encoder = make(name)
    q, _, positions = inputs(encoder, batch=())
    upstream = torch.randn(q.shape, dtype=torch.float64)
    q.requires_grad_()
    encoder(q, q.detach(), positions)[0].backward(upstream)
    basis = encoder.basis()
    plane = basis.mT @ encoder.matrix(positions)[0] @ basis
    expected = (basis[0] @ (plane.mT @ upstream[..., None]))[..., 0]
    close(q.grad, expected, 1e-11)


@encoders
def test_dtype_out_is_dtype_in(name):
    encoder = make(name)
    q, k, positions = inputs(encoder)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        encoded = encoder(q.to(dtype), k.to(dtype), positions)
        assert {t.dtype for t in encoded} == {dtype}
        assert encoder.rotate(q.to(dtype), positions).dtype == dtype
        exact = encoder(q.to(dtype).double(), k.to(dtype).double(), positions)
        for got, want in zip(encoded, exact, strict=True):
            # one rounding of the result: angles and products are float32 or better
            exact_enough = 8 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
            rounding = torch.finfo(dtype).eps / 2 * want.abs() + exact_enough * want.abs().max()
            assert ((got.double() - want).abs() <= rounding).all()


@encoders
def test_autocast_does_not_touch_the_angles(name):
    encoder = make(name, torch.float32)
    q, k, positions = inputs(encoder, dtype=torch.float32)
    plain = encoder(q, k, positions * 1000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = encoder(q, k, positions * 1000)
    for a, b in zip(plain, cast, strict=True):
        close(a, b, 0.0)


F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


@encoders
@pytest.mark.parametrize(
    ("stored", "steps", "kept"),
    [
        *((stored, (half,), stored) for stored in (F32, F64) for half in (F16, BF16)),
        (F64, (F32,), F32),
        (F32, (F64, F16), F64),
        (F64, (BF16, F32), F32),
    ],
)
def test_what_is_learned_goes_to_float32_and_float64_as_it_is_told(name, stored, steps, kept):
    """With its gradient, which has its dtype; half precision leaves both, and all digits."""
    encoder = make(name, stored)
    moved = copy.deepcopy(encoder)
    for parameter in moved.parameters():
        parameter.grad = torch.ones_like(parameter)
    own = list(moved.parameters())
    for step in steps:
        moved.to(step)
    assert all(a is b for a, b in zip(moved.parameters(), own, strict=True))
    assert {t.dtype for p in own for t in (p, p.grad)} <= {kept}
    assert moved.frequencies().dtype == moved.basis().dtype == F64
    if kept == stored:
        close(moved.basis(), encoder.basis(), 0.0)
        close(moved.frequencies(), encoder.frequencies(), 0.0)
    q, k, positions = inputs(moved, dtype=steps[-1])
    assert {t.dtype for t in moved(q, k, positions)} == {steps[-1]}


@encoders
def test_moves_between_devices(name):
    """The meta device stands for any other one: nothing may stay behind on the CPU."""
    encoder = make(name).to("meta")
    q, _, positions = (t.to("meta") for t in inputs(encoder))
    assert encoder.frequencies().device.type == "meta"
    assert encoder.generators().device.type == "meta"
    assert encoder.matrix(positions).device.type == "meta"
    assert encoder.rotate(q, positions).shape == q.shape


@encoders
def test_every_kind_of_copy_says_the_same_and_stands_alone(name):
    encoder, loaded = make(name), CASES[name]().double()
    state = copy.deepcopy(encoder.state_dict())
    loaded.load_state_dict(state)
    emptied = copy.deepcopy(encoder).to("meta").to_empty(device="cpu")
    emptied.load_state_dict(state)
    shared = copy.deepcopy(encoder).share_memory()
    assert all(t.is_shared() for t in (*shared.parameters(), *shared.buffers()))
    folded = copy.deepcopy(encoder.folded())
    assert list(folded.parameters()) == []
    given = inputs(encoder)
    before, frequencies = encoder(*given)[0].clone(), folded.frequencies().clone()
    with torch.no_grad():
        for tensor in (*encoder.parameters(), *encoder.buffers()):
            if tensor.is_floating_point():  # indices would leave their range
                tensor.add_(1.0)
    for twin in (make(name), loaded, emptied, shared):
        close(twin(*given)[0], before, 0.0)
    close(folded.frequencies(), frequencies, 0.0)


@encoders
def test_vmap(name):
    encoder = make(name)
    q, k, positions = inputs(encoder, batch=(3,))
    mapped = torch.func.vmap(lambda q, k: encoder(q, k, positions))(q, k)
    close(mapped[0], encoder(q, k, positions)[0])
    shifts = torch.arange(3.0).double()[:, None, None]
    by_position = torch.func.vmap(lambda r: encoder.rotate(q[0], r))(positions + shifts)
    close(by_position, torch.stack([encoder.rotate(q[0], positions + s) for s in shifts]))


@encoders
def test_many_encoders_in_one_call(name):
    """Ensembles: vmap over the stacked parameters and buffers of encoders of one kind."""
    one, other = make(name), CASES[name]().double()
    q, k, positions = inputs(one)
    state = torch.func.stack_module_state([one, other])
    mapped = torch.func.vmap(
        lambda *state: torch.func.functional_call(one, state, (q, k, positions)),
        in_dims=tuple(0 if tensors else None for tensors in state),
    )
    if any(state):
        for got, *want in zip(
            mapped(*state), one(q, k, positions), other(q, k, positions), strict=True
        ):
            close(got, torch.stack(want))


COMPILED = ["rope-8", "rope-half-6-heads-3", "mixed-12-2d-heads-3", "reflection-6-heads-3",
            "circulant-8-2d", "cayley-8-sparse-2d", "dense-7-3d-heads-2", *OWN]  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_compile(name):
    torch.compiler.reset()  # all encoders are one function, which is compiled 8 times at most
    encoder = make(name)
    q, k, positions = inputs(encoder)
    if name == "rope-8":
        # code is generated for one encoder, and as plain as can be: it takes seconds
        slow = {"cpp.vec_isa_ok", "cpp_cache_precompile_headers"}
        slow &= set(torch._inductor.list_options())
        compiled = torch.compile(encoder, fullgraph=True, options=dict.fromkeys(slow, False))
    else:
        compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    found = []
    for call in (encoder, compiled):
        encoder.zero_grad()
        encoded = (*call(q, k, positions), *call(q, k, positions + 1))
        if list(encoder.parameters()):
            sum(x.pow(3).sum() for x in encoded).backward()
        found.append([*encoded, *(p.grad.clone() for p in encoder.parameters())])
    for got, want in zip(*found, strict=True):
        close(got, want, 1e-10)


@pytest.mark.parametrize("name", COMPILED)
def test_export_for_any_number_of_tokens(name):
    """With its basis, and as it is served: folded."""
    encoder = make(name)
    given = inputs(encoder)
    longer = [torch.cat([x, x + 1], -2) for x in given]
    tokens = torch.export.Dim("tokens", min=2)
    places = tuple({x.ndim - 2: tokens} for x in given)
    for served in (encoder, encoder.folded()):
        program = torch.export.export(served, given, dynamic_shapes=places).module()
        for got, want in zip(program(*longer), served(*longer), strict=True):
            close(got, want)
    torch.compiler.reset()
    folded = torch.compile(encoder.folded(), fullgraph=True, backend="aot_eager")
    for got, want in zip(folded(*given), encoder.folded()(*given), strict=True):
        close(got, want)


@encoders
def test_positions_of_every_accepted_shape(name):
    encoder = make(name)
    q, k, positions = inputs(encoder, batch=(2,))
    shared = encoder(q, k, positions)[0]
    close(encoder(q, k, positions.expand(2, -1, -1))[0], shared)
    close(encoder(q, k, positions[None])[0], shared)
    own = torch.stack([positions, positions + 2])
    both = encoder(q, k, own)[0]
    close(both[1], encoder(q[1], k[1], positions + 2)[0])
    close(encoder(q, k, own[:, None])[0][1], encoder(q, k, positions + 2)[0])
    whole = positions.round()
    close(encoder(q, k, whole.long())[0], encoder(q, k, whole)[0], 0.0)
    close(encoder.matrix(whole.long()), encoder.matrix(whole), 0.0)
    assert encoder.matrix(whole.float()).dtype == torch.float32
    deep, _, _ = inputs(encoder, batch=(2, 3))
    assert encoder.rotate(deep, positions).shape == deep.shape
    assert encoder.matrix(own).shape == (2, encoder.heads, 6, encoder.head_dim, encoder.head_dim)


@encoders
def test_short_and_empty_sequences(name):
    encoder = make(name)
    for seq in (0, 1, 2):
        q, k, positions = inputs(encoder, seq=seq)
        encoded_q, encoded_k = encoder(q, k, positions)
        assert encoded_q.shape == q.shape
        assert encoded_k.shape == k.shape
        assert encoder.matrix(positions).shape[-3] == seq
        empty = q[:0]
        assert encoder(empty, empty, positions)[0].shape == empty.shape


@encoders
def test_keys_elsewhere(name):
    """Decoding: one new query against cached keys, each where it is, turned now or when cached."""
    encoder = make(name)
    q, k, positions = inputs(encoder)
    full_q, full_k = encoder(q, k, positions)
    last_q, all_k = encoder(q[..., -1:, :], k, positions[-1:], key_positions=positions)
    close(last_q, full_q[..., -1:, :])
    close(all_k, full_k)
    each = [encoder(q, k[..., t : t + 1, :], positions, positions[t : t + 1])[1] for t in range(6)]
    close(torch.cat(each, -2), full_k)


@encoders
def test_a_cache_can_be_moved_to_new_positions(name):
    encoder = make(name).folded()
    _, k, positions = inputs(encoder)
    cached = encoder(k, k, positions)[1]
    moved = encoder(cached, cached, torch.full_like(positions, -3.5))[1]
    close(moved, encoder(k, k, positions - 3.5)[1], 1e-11)


@encoders
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_phases_stand_for_their_positions(name, dtype):
    encoder = make(name)
    q, k, positions = inputs(encoder, seq=5, dtype=dtype)
    phases = encoder.phases(positions)
    for got, want in zip(encoder(q, k, phases), encoder(q, k, positions), strict=True):
        assert torch.equal(got, want)
    assert torch.equal(encoder.rotate(q, phases), encoder.rotate(q, positions))
    few = encoder.phases(positions[:2])
    got, want = (encoder(q[..., :2, :], k, *r) for r in ((few, phases), (positions[:2], positions)))
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])
    for batched in (positions.expand(2, -1, -1), positions.expand(1, -1, -1)):
        got, _ = encoder(q, k, encoder.phases(batched))
        close(got, encoder(q, k, positions)[0], 1e-11 if dtype == torch.float64 else 0.05)


@encoders
def test_phases_carry_gradients_and_digits(name):
    encoder = make(name)
    q, k, positions = inputs(encoder, seq=3)
    phases = encoder.phases(positions)
    narrow = phases.to(torch.bfloat16)
    assert narrow.turns.dtype == torch.float32  # angles in bfloat16 would be lost
    assert phases.to("meta").turns.is_meta
    found = []
    for places in (positions, phases) if [*encoder.parameters()] else ():
        encoder.zero_grad()
        sum(x.pow(3).sum() for x in encoder(q, k, places)).backward()
        found.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    for a, b in zip(*found, strict=True) if found else ():
        close(a, b, 1e-10)


@encoders
def test_phases_of_others_are_refused(name):
    encoder = make(name)
    q, k, positions = inputs(encoder, seq=5)
    phases = encoder.phases(positions)
    bad = [encoder.phases(positions[:4]), phases._replace(turns=phases.turns[..., :0])]
    bad.append(phases._replace(turns=phases.turns[..., :1, :, :, :].repeat(9, 1, 1, 1)))
    for wrong in bad:
        with pytest.raises(ValueError, match="positions must be phases of this encoder for the 5"):
            encoder(q, k, wrong)
    with pytest.raises(ValueError, match="leading dimensions of positions must broadcast"):
        encoder.rotate(q, encoder.phases(positions.expand(3, -1, -1)))
    with pytest.raises(ValueError, match="key_positions must be phases of this encoder"):
        encoder(q, k, phases, encoder.phases(positions[:1]))


@encoders
def test_strides_do_not_matter(name):
    """Views with transposed, sliced, odd or expanded strides give what a copy gives."""
    encoder = make(name)
    q, k, positions = inputs(encoder)
    want = encoder(q, k, positions)[0]
    sliced = torch.zeros(*q.shape[:-1], q.shape[-1] + 3, dtype=q.dtype)[..., 1:-2].copy_(q)
    transposed = q.transpose(-1, -2).contiguous().transpose(-1, -2)
    by_token = q.transpose(-2, -3).contiguous().transpose(-2, -3)
    odd_offset = torch.zeros(q.numel() + 1, dtype=q.dtype)[1:].view_as(q).copy_(q)
    for view in (sliced, transposed, by_token, odd_offset):
        close(encoder(view, k, positions)[0], want)
    one = q[:1].expand(2, -1, -1, -1)
    close(encoder(one, k, positions)[0][1], want[0])


@encoders
def test_inputs_are_not_changed_and_nan_stays_in_its_token(name):
    encoder = make(name)
    q, k, positions = inputs(encoder)
    q[0, 0, 2, 0] = torch.nan
    copies = [t.clone() for t in (q, k, positions)]
    encoded = encoder(q, k, positions)[0]
    for t, c in zip((q, k, positions), copies, strict=True):
        assert torch.equal(t.nan_to_num(7.0), c.nan_to_num(7.0))
    spoiled = encoded.isnan().any(-1)
    assert spoiled[0, 0, 2]
    assert spoiled.sum() == 1


@encoders
def test_bad_input_is_named(name):
    encoder = make(name)
    q, k, positions = inputs(encoder)
    d, n = encoder.head_dim, encoder.coord_dim
    more = torch.zeros(6, n + 1)
    shape = rf"must have shape \(..., seq, {n}\), got"
    weight = rf"weight must have shape .*{d}, model_dim.* got"
    rows = [
        (
            encoder,
            (q.long(), k, positions),
            "TypeError: q must be a floating-point tensor, got torch.int64",
        ),
        (
            encoder,
            (q, k.to(torch.complex128), positions),
            "TypeError: k must be .* torch.complex128",
        ),
        (encoder, (q[..., :0], k, positions), rf"q must have shape .*{d}\), got"),
        (encoder, (q[0, 0], k, positions), "q must have shape"),
        (encoder, (q, k, positions[:5]), "positions must have one row for each of the 6 tokens of"),
        (encoder, (q, k[..., :5, :], positions), "positions .* of k"),
        (encoder, (q, k, more), rf"positions {shape} \(6, {n + 1}\)"),
        (encoder, (q, k, torch.zeros(6)), rf"positions {shape} \(6,\)"),
        (encoder, (q, k, positions > 0), "TypeError: positions must be .* torch.bool"),
        (encoder, (q, k, positions.expand(3, -1, -1)), "leading dimensions of positions"),
        (encoder, (q, k, positions, positions[:2]), "key_positions"),
        (encoder.rotate, (q[..., :0], positions), "x must have shape"),
        (encoder.rotate, (q, positions[:5]), "positions must have one row for each .* of x"),
        (encoder.matrix, (more,), "positions must have shape"),
        (encoder.fold, (torch.zeros(0, 3),), weight),
        (encoder.fold, (torch.zeros(4 * d, 3, 2),), weight),
        (encoder.fold, (torch.zeros(4 * d, 3).long(),), "TypeError: weight must be .* torch.int64"),
        (encoder.fold, (torch.nn.Linear(3, d),), "TypeError: weight must be .* Linear"),
    ]
    if n == 1:  # a line written flat gets a hint
        rows.append((encoder, (q, k, torch.zeros(6)), r"positions\[:, None\]"))
    if d > 1:
        rows.append((encoder.fold, (torch.zeros(d + 1, 3),), weight))
    if encoder.heads > 1:
        rows.append((encoder, (q[:, :1], k[:, :1], positions), f"{encoder.heads} heads"))
        rows.append((encoder.fold, (torch.zeros(d, 3),), weight))
    for call, arguments, match in rows:
        with refused(match):
            call(*arguments)


@kinds
def test_what_a_new_encoder_has(kind):
    arguments, shown = KINDS[kind]
    encoder = kind(**arguments)
    assert repr(encoder) == shown
    learned = [key for key, _ in encoder.named_parameters()]
    assert set(encoder.state_dict()) == {*learned} | (
        {"support"} if kind is CayleySTRING else set()
    )
    assert {p.dtype for p in encoder.parameters()} <= {torch.float32}
    for parameter in encoder.parameters():
        parameter.data.fill_(torch.nan)
    if learned:
        encoder.reset_parameters()
    assert encoder.frequencies().isfinite().all()
    assert encoder.basis().isfinite().all()
    if not learned:
        with pytest.raises(AttributeError):
            encoder.base = 500.0


@kinds
def test_numbers_of_a_constructor_are_named(kind):
    arguments, _ = KINDS[kind]
    counts = {"head_dim", "coord_dim", "heads", "block_size"} & {
        *inspect.signature(kind).parameters
    }
    rows = [
        *((name, 0, f"{name} must be at least [12], got 0") for name in counts),
        *((name, 1.5, f"TypeError: {name} must be an int, got 1.5") for name in counts),
        *((name, True, f"TypeError: {name} must be an int, got True") for name in counts),
    ]
    if "base" in inspect.signature(kind).parameters:
        positive = "base must be positive and finite, got"
        rows += [("base", bad, positive) for bad in (0, -1.0, math.inf, math.nan)]
        rows += [("base", bad, "TypeError: base must be a number, got") for bad in ("10", None)]
    if kind not in (CirculantSTRING, CayleySTRING):
        rows.append(("head_dim", 7, "head_dim must be even .*got 7"))
    for name, bad, match in rows:
        with refused(match):
            kind(**{**arguments, name: bad})


OMEGA = torch.zeros(2, 2, 1)


@pytest.mark.parametrize(
    ("kind", "arguments", "match"),
    [
        (RoPE, (8, 10, 1, "neox"), "layout must be one of .*got 'neox'"),
        (AxialRoPE, (4, 3), "head_dim must be at least 6, .* 3 coordinates, got 4"),
        (CirculantSTRING, (16, 1, 1, 5), "block_size must divide head_dim 16, got 5"),
        (CirculantSTRING, (16, 1, 1, 32), "block_size must divide head_dim 16, got 32"),
        (CayleySTRING, (8, 1, 1, -0.1), "density must be between 0 and 1, got -0.1"),
        (CayleySTRING, (8, 1, 1, 1.1), "density must be between 0 and 1, got 1.1"),
        (CayleySTRING, (8, 1, 1, math.nan), "density must be between 0 and 1, got nan"),
        (CayleySTRING, (8, 1, 1, True), "TypeError: density must be a number, got True"),
        (CayleySTRING, (8, 1, 1, "1"), "TypeError: density must be a number, got '1'"),
        (STRING, ([[[1.0]]],), "TypeError: frequencies must be a floating-point tensor, got list"),
        (STRING, (OMEGA.cfloat(),), "TypeError: frequencies must be .* torch.complex64"),
        (STRING, (OMEGA, [[1]]), "TypeError: basis must be .* list"),
        (STRING, (OMEGA[:, :0],), "head_dim must be given"),
        (STRING, (OMEGA[0],), r"frequencies must have shape .* got \(2, 1\)"),
        (STRING, (OMEGA, None, 3), "head_dim must be at least 4 .* 3"),
        (
            STRING,
            (OMEGA, torch.eye(4)[None]),
            r"basis must have shape \(2, 4, 4\), got \(1, 4, 4\)",
        ),
        (DenseSTRING, (torch.zeros(1, 4, 4),), r"\(heads, coord_dim, d, d\), got \(1, 4, 4\)"),
        (DenseSTRING, (torch.eye(4)[None, None],), r"skew-symmetric.* 2.0e\+00 of that of L"),
        (
            DenseSTRING,
            ([[0.0]],),
            "TypeError: generators must be a floating-point tensor, got list",
        ),
    ],
)
def test_what_does_not_fit_a_constructor_is_named(kind, arguments, match):
    with refused(match):
        kind(*arguments)
