"""Contract of rotary encoders, the list of the properties that every rotary encoder must have."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stringlib.encoders.rotary import RotaryEncoder
from stringlib.testing import properties
from stringlib.testing.contract import (
    Contract,
    close,
    each_close,
    refused,
    skip,
    small,
    true,
)
from stringlib.testing.modes import EAGER, Mode
from stringlib.testing.modules import COPIES, Held, holds_of_modules

Make = Callable[..., RotaryEncoder]
"""Function ``make(dtype)`` that returns the encoder, with the same parameters at each call."""

ENCODER = Contract()


def heads_of(encoder: RotaryEncoder) -> int:
    """Return a number of heads of queries that an encoder accepts.

    An encoder with one head accepts queries with any number of heads; for it the result is 4. For
    any other encoder the result is ``encoder.heads``.
    """
    return 4 if encoder.heads == 1 else encoder.heads


def inputs(
    encoder: RotaryEncoder,
    seq: int = 6,
    batch: tuple[int, ...] = (2,),
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries, keys and positions for an encoder.

    Args:
        encoder: The encoder.
        seq: Number of tokens. Default: 6.
        batch: Shape of the batch. Default: ``(2,)``.
        dtype: Dtype of queries and keys. Positions are always float64. Default: float64.

    Returns:
        Queries and keys, ``(*batch, heads, seq, head_dim)`` each, and positions,
        ``(seq, coord_dim)``.
    """
    generator = torch.Generator().manual_seed(1)
    shape = (2, *batch, heads_of(encoder), seq, encoder.head_dim)
    q, k = torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)
    positions = torch.randn(seq, encoder.coord_dim, dtype=torch.float64, generator=generator)
    return q, k, 10 * positions


@ENCODER.holds("eq-relative")
def shifting_all_positions_does_not_change_the_scores(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder)

    def scores(positions: Tensor) -> Tensor:
        return properties.logits(encoder, q, k, positions)

    by_coordinate = torch.arange(1, encoder.coord_dim + 1) * 3.7
    moved = run.prepared(scores, positions)
    with run.around():
        found = [moved(positions + x) for x in (0, 1, 17, 300, 0.37, -1234.5, by_coordinate)]
    for there in found[1:]:
        error = properties.relative_logit_error(found[0], there, q, k)
        small(error, 1e-11, "a score, relative to the norms of query and key")


@ENCODER.holds("eq-outer-basis")
def each_head_has_the_scores_of_the_rotation_matrix(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder)

    def scores_and_matrices(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return properties.logits(encoder, *tensors), encoder.matrix(tensors[2])

    both, matrices = run(scores_and_matrices, q, k, positions)
    for head in range(heads_of(encoder)):
        matrix = matrices[head if encoder.heads > 1 else 0]
        rotated_q = torch.einsum("nij,bnj->bni", matrix, q[:, head])
        rotated_k = torch.einsum("nij,bnj->bni", matrix, k[:, head])
        close(both[:, head], rotated_q @ rotated_k.mT, 1e-11, f"a score of head {head}")


@ENCODER.holds()
def scores_in_float32_are_right_far_away(make: Make, run: Mode) -> None:
    exact, encoder = make(), make(torch.float32)
    exact.load_state_dict(encoder.state_dict())  # the same frequencies as float32 stores
    q, k, near = inputs(exact)
    for largest in (1e3, 1e6):
        positions = (near / 30 * largest).round()
        truth = properties.logits(exact, q, k, positions)
        narrow = q.float(), k.float(), positions.float()

        def scores(*tensors: Tensor) -> Tensor:
            return properties.logits(encoder, *tensors)

        got = run(scores, *narrow)
        error = properties.relative_logit_error(got, truth, q, k)
        small(error, 1e-6, f"a score at positions of {largest:.0e}")
        moved = run(scores, *narrow[:2], narrow[2] + largest / 2)
        error = properties.relative_logit_error(got, moved, *narrow[:2])
        small(error, 1e-6, f"a score at positions of {largest:.0e}, moved by half of that")


@ENCODER.holds("eq-isometry")
def rotations_are_orthogonal_and_keep_norms(make: Make, run: Mode) -> None:
    encoder = make()
    q, _, positions = inputs(encoder)
    matrices = run(encoder.matrix, positions)
    small(properties.orthogonality_error(matrices), 1e-12, "RᵀR − I")
    rotated = run(encoder.rotate, q, positions)
    close(rotated.norm(dim=-1), q.norm(dim=-1), 1e-12, "the norm of a rotated vector")
    determinants = torch.linalg.det(matrices)
    close(determinants, torch.ones_like(determinants), 1e-11, "the determinant of R")


@ENCODER.holds("eq-group-law")
def rotations_compose_and_are_the_identity_at_the_origin(make: Make, run: Mode) -> None:
    encoder = make()
    _, _, a = inputs(encoder)
    b = a.flip(0) * 1.7 - 3
    here, there, both, back, origin = (
        run(encoder.matrix, r) for r in (a, b, a + b, -a, torch.zeros_like(a))
    )
    close(here @ there, both, 1e-12, "R(a)R(b) − R(a + b)")
    close(origin, torch.eye(encoder.head_dim).to(a).expand_as(origin), 1e-12, "R(0) − I")
    close(back, here.mT, 1e-12, "R(−a) − R(a)ᵀ")


@ENCODER.holds("eq-string-generators")
def generators_are_skew_commute_and_exponentiate_to_the_rotation(make: Make, run: Mode) -> None:
    encoder = make()
    _, _, positions = inputs(encoder)
    generators, matrices = run(lambda r: (encoder.generators(), encoder.matrix(r)), positions)
    square = encoder.head_dim, encoder.head_dim
    shape = (encoder.heads, encoder.coord_dim, *square)
    got = tuple(generators.shape)
    true(got == shape, f"generators() must have shape {shape}, got {got}")
    small(properties.skew_error(generators), 1e-13, "L + Lᵀ")
    small(properties.commutator_error(generators), 1e-12, "a commutator of generators")
    exponent = torch.einsum("nk,hkij->hnij", positions, generators)
    close(matrices, torch.matrix_exp(exponent.contiguous()), 1e-11, "R(r) − exp(Σ r L)")


@ENCODER.holds("eq-string")
def basis_and_frequencies_rebuild_the_rotation(make: Make, run: Mode) -> None:
    """Check that R(r) = P RoPE(Ωr) Pᵀ, with RoPE written out in sines and cosines."""
    encoder = make()
    _, _, positions = inputs(encoder)
    basis, frequencies, matrices = run(
        lambda r: (encoder.basis(), encoder.frequencies(), encoder.matrix(r)), positions
    )
    pairs, d = frequencies.shape[1], encoder.head_dim
    true(
        basis.shape == (encoder.heads, d, d),
        f"basis() must have shape {(encoder.heads, d, d)}, got {tuple(basis.shape)}",
    )
    true(
        frequencies.shape == (encoder.heads, pairs, encoder.coord_dim),
        f"frequencies() must have shape ({encoder.heads}, pairs, {encoder.coord_dim}), got "
        f"{tuple(frequencies.shape)}",
    )
    small(properties.orthogonality_error(basis), 1e-12, "PᵀP − I")
    for head, (token, r) in itertools.product(range(encoder.heads), enumerate(positions)):
        plane = torch.eye(d, dtype=torch.float64)
        for i, angle in enumerate(frequencies[head] @ r):
            a, b = (2 * i, 2 * i + 1) if encoder.layout == "interleaved" else (i, i + pairs)
            plane[a, a] = plane[b, b] = angle.cos()
            plane[a, b], plane[b, a] = -angle.sin(), angle.sin()
        rebuilt = basis[head] @ plane @ basis[head].T
        close(matrices[head, token], rebuilt, 1e-11, "R(r) − P RoPE(Ωr) Pᵀ")


@ENCODER.holds()
def rotate_multiplies_by_the_matrix_and_a_call_omits_the_outer_basis(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder)
    rotated, encoded_q, encoded_k = run(
        lambda q, k, r: (encoder.rotate(q, r), *encoder(q, k, r)), q, k, positions
    )
    by_matrix = (encoder.matrix(positions) @ q[..., None])[..., 0]
    close(rotated, by_matrix, 1e-12, "rotate(x)")
    close(encoded_k.norm(dim=-1), k.norm(dim=-1), 1e-12, "the norm of an encoded key")
    if type(encoder)._encode is not RotaryEncoder._encode:
        return  # this encoder applies the whole matrix, including the outer basis
    outer = encoder.basis().expand(heads_of(encoder), -1, -1)
    back = torch.einsum("hij,bhnj->bhni", outer, encoded_q)
    close(back, rotated, 1e-12, "P times an encoded query")


@ENCODER.holds("eq-fold")
def folding_does_not_change_the_scores(make: Make, run: Mode) -> None:
    encoder = make()
    rows = heads_of(encoder) * encoder.head_dim
    generator = torch.Generator().manual_seed(2)
    w_q, w_k = torch.randn(2, rows, 9, dtype=torch.float64, generator=generator)
    x = torch.randn(2, 6, 9, dtype=torch.float64, generator=generator)
    _, _, positions = inputs(encoder)

    def projected(weight: Tensor) -> Tensor:
        return (x @ weight.mT).unflatten(-1, (-1, encoder.head_dim)).transpose(-3, -2)

    def scores(encoder: RotaryEncoder, w_q: Tensor, w_k: Tensor) -> Tensor:
        return properties.logits(encoder, projected(w_q), projected(w_k), positions)

    folded = encoder.folded()
    direct = run(lambda *w: scores(encoder, *w), w_q, w_k)
    served = run(lambda *w: scores(folded, *map(encoder.fold, w)), w_q, w_k)
    error = properties.relative_logit_error(direct, served, projected(w_q), projected(w_k))
    small(error, 1e-11, "a score of the folded projections")
    # folding a bias is like folding one more column of the weight
    close(encoder.fold(w_q[:, 0]), encoder.fold(w_q)[:, 0], 1e-12, "a folded bias")
    for dtype in (torch.float32, torch.bfloat16):
        narrow, exact = (encoder.fold(w.to(dtype)) for w in (w_q, w_q.to(dtype).double()))
        close(narrow, exact.to(dtype), 0.0, f"a folded weight in {dtype}: one rounding")


@ENCODER.holds(core=True)
def gradients_are_the_derivatives(make: Make, run: Mode) -> None:
    encoder = make()
    if encoder.head_dim > 16:
        skip()  # the cost is quadratic in head_dim, and small encoders run the same code
    _gradients_are_those_of_eager_mode(make, run)
    if run is not EAGER:
        return
    q, k, positions = inputs(encoder, seq=3, batch=())
    names = [n for n, _ in encoder.named_parameters()]
    parameters = [p.detach().clone().requires_grad_() for p in encoder.parameters()]

    def encode(q: Tensor, k: Tensor, positions: Tensor, *values: Tensor) -> Tensor:
        state = dict(zip(names, values, strict=True))
        return torch.func.functional_call(encoder, state, (q, k, positions))

    leaves = (*(t.requires_grad_() for t in (q, k, positions)), *parameters)
    # Small Jacobians are compared entry by entry. For large ones and for second derivatives,
    # products with random vectors are compared.
    torch.autograd.gradcheck(encode, leaves, fast_mode=encoder.head_dim > 5)
    torch.autograd.gradgradcheck(encode, leaves, fast_mode=True)


def _gradients_are_those_of_eager_mode(make: Make, run: Mode) -> None:
    found = []
    for mode in (EAGER, run):
        encoder = make()
        leaves = [t.requires_grad_() for t in inputs(encoder)]
        # one more number in front makes gradients start at unaligned memory addresses
        encoded = [x.flatten() for x in mode(encoder, *leaves)]
        out = torch.cat([encoded[0].new_ones(1), *encoded])
        found.append(mode.gradients(out, [*leaves, *encoder.parameters()]))
    each_close(found[1], found[0], 1e-10, "a gradient")


@ENCODER.holds()
def results_have_the_dtype_of_the_vectors_and_are_rounded_once(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        narrow = q.to(dtype), k.to(dtype)
        encoded = run(encoder, *narrow, positions)
        rotated = run(encoder.rotate, narrow[0], positions)
        dtypes = {t.dtype for t in (*encoded, rotated)}
        true(dtypes == {dtype}, f"outputs for {dtype} must be {dtype}, got {dtypes}")
        exact = encoder(*(x.double() for x in narrow), positions)
        for got, want in zip(encoded, exact, strict=True):
            # only the result is rounded to dtype; angles and products are float32 or float64
            exact_enough = 8 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
            rounding = torch.finfo(dtype).eps / 2 * want.abs() + exact_enough * want.abs().max()
            beyond = ((got.double() - want).abs() - rounding).max().item()
            small(beyond, 0.0, f"a result in {dtype}, beyond its rounding,")


@ENCODER.holds()
def autocast_does_not_change_the_angles(make: Make, run: Mode) -> None:
    encoder = make(torch.float32)
    q, k, positions = inputs(encoder, dtype=torch.float32)
    plain = run(encoder, q, k, positions * 1000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = run(encoder, q, k, positions * 1000)
    each_close(cast, plain, 0.0, "a result under autocast")


@ENCODER.holds()
def parameters_move_to_float32_and_float64_but_never_to_half(make: Make, run: Mode) -> None:
    """Check the dtypes of parameters and their gradients after moves of the encoder.

    A move to float32 or float64 converts parameters and gradients. A move to half precision leaves
    them unchanged, so that no digits are lost.
    """
    f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
    ways = [
        *((stored, (half,), stored) for stored in (f32, f64) for half in (f16, bf16)),
        (f64, (f32,), f32),
        (f32, (f64, f16), f64),
        (f64, (bf16, f32), f32),
    ]
    for stored, steps, kept in ways:
        encoder = make(stored)
        moved = copy.deepcopy(encoder)
        for parameter in moved.parameters():
            parameter.grad = torch.ones_like(parameter)
        own = list(moved.parameters())
        for step in steps:
            moved.to(step)
        same = all(a is b for a, b in zip(moved.parameters(), own, strict=True))
        true(same, "parameters must stay the same objects when moved, as an optimizer expects")
        dtypes = {t.dtype for p in own for t in (p, p.grad) if t is not None}
        words = f"parameters moved from {stored} to {steps} must be {kept}, got {dtypes}"
        true(dtypes <= {kept}, words)
        wide = {moved.frequencies().dtype, moved.basis().dtype}
        true(wide == {f64}, f"frequencies() and basis() must be {f64}, got {wide}")
        if kept == stored:
            close(moved.basis(), encoder.basis(), 0.0, "the basis after a move")
            close(moved.frequencies(), encoder.frequencies(), 0.0, "a frequency after a move")
        q, k, positions = inputs(moved, dtype=steps[-1])
        dtypes = {t.dtype for t in run(moved, q, k, positions)}
        true(dtypes == {steps[-1]}, f"outputs for {steps[-1]} must be {steps[-1]}, got {dtypes}")


def all_of(encoder: RotaryEncoder, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
    """Return the results of a call of an encoder and of its methods that return tensors."""
    matrices = encoder.matrix(positions), encoder.generators(), encoder.basis()
    return (*encoder(q, k, positions), encoder.rotate(q, positions), *matrices)


holds_of_modules(ENCODER, lambda make: Held(make, all_of, inputs(make())))


@ENCODER.holds()
def a_copy_stands_alone(make: Make, run: Mode) -> None:
    encoder = make()
    folded = copy.deepcopy(encoder.folded())
    count = len([*folded.parameters()])
    true(not count, f"a folded encoder must have no parameters, got {count}")
    given = inputs(encoder)
    before, frequencies = run(encoder, *given)[0].clone(), folded.frequencies().clone()
    apart = {name: copied for name, copied in COPIES.items() if "assigned" not in name}
    copies = {name: copied(lambda: copy.deepcopy(encoder)) for name, copied in apart.items()}
    with torch.no_grad():
        for tensor in (*encoder.parameters(), *encoder.buffers()):
            if tensor.is_floating_point():  # integer buffers are indices, with a limited range
                tensor.add_(1.0)
    for name, twin in copies.items():
        close(run(twin, *given)[0], before, 0.0, f"a query of an encoder {name}")
    close(folded.frequencies(), frequencies, 0.0, "a frequency of a folded copy")


@ENCODER.holds(core=True)
def any_number_of_tokens_and_batches(make: Make, run: Mode) -> None:
    """Check that one graph of an encoder serves all numbers of tokens and all batch sizes.

    In modes that are fast to prepare, the folded encoder is checked as well.
    """
    encoder = make()
    sizes = (6, 2), (9, 3), (2, 5)
    first = inputs(encoder, 6, (2,))
    for served in (encoder, encoder.folded()) if run.cheap else (encoder,):
        program = run.prepared(served, *first, free=((0, 2), (0, 2), (0,)))
        for seq, batch in sizes:
            given = inputs(encoder, seq, (batch,))
            with run.around():
                found = program(*given)
            each_close(found, served(*given), 1e-12, f"a result for {batch} times {seq} tokens")


@ENCODER.holds()
def vmap_works_over_vectors_and_over_positions(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder, batch=(3,))
    shifts = torch.arange(3.0).double()[:, None, None]
    with run.around():
        mapped = torch.func.vmap(lambda q, k: encoder(q, k, positions))(q, k)
        by_place = torch.func.vmap(lambda r: encoder.rotate(q[0], r))(positions + shifts)
    close(mapped[0], encoder(q, k, positions)[0], 1e-12, "a query")
    each = torch.stack([encoder.rotate(q[0], positions + s) for s in shifts])
    close(by_place, each, 1e-12, "a rotated vector")


@ENCODER.holds()
def vmap_works_over_an_ensemble_of_encoders(make: Make, run: Mode) -> None:
    """Check ``vmap`` over the stacked parameters and buffers of two encoders of one class."""
    one, other = make(), make()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.7)
    given = inputs(one)
    state = torch.func.stack_module_state([one, other])
    if not any(state):
        return
    in_dims = tuple(0 if tensors else None for tensors in state)

    def call(*state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.func.functional_call(one, state, given)

    with run.around():
        mapped = torch.func.vmap(call, in_dims=in_dims)(*state)
    for got, *want in zip(mapped, one(*given), other(*given), strict=True):
        close(got, torch.stack(want), 1e-12, "a result of two encoders")


@ENCODER.holds()
def positions_may_have_every_valid_shape_and_dtype(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder, batch=(2,))
    shared = encoder(q, k, positions)[0]
    for shape in ((2, -1, -1), (1, -1, -1)):
        close(run(encoder, q, k, positions.expand(shape))[0], shared, 1e-12, "a query")
    own = torch.stack([positions, positions + 2])
    apart = encoder(q, k, positions + 2)[0]
    close(run(encoder, q, k, own)[0][1], apart[1], 1e-12, "a query at positions of its own")
    close(run(encoder, q, k, own[:, None])[0][1], apart, 1e-12, "a query at positions of its own")
    whole = positions.round()
    for call in (lambda r: encoder(q, k, r)[0], encoder.matrix):
        close(run(call, whole.long()), run(call, whole), 0.0, "a result at integers")
    dtype = encoder.matrix(whole.float()).dtype
    true(
        dtype == torch.float32,
        f"matrix() of float32 positions must be {torch.float32}, got {dtype}",
    )
    deep, _, _ = inputs(encoder, batch=(2, 3))
    got = tuple(run(encoder.rotate, deep, positions).shape)
    true(got == deep.shape, f"rotate() must keep the shape {tuple(deep.shape)}, got {got}")
    square = (2, encoder.heads, 6, encoder.head_dim, encoder.head_dim)
    got = tuple(run(encoder.matrix, own).shape)
    true(got == square, f"matrix() must have shape {square}, got {got}")


@ENCODER.holds()
def short_and_empty_sequences(make: Make, run: Mode) -> None:
    encoder = make()
    for seq in (0, 1, 2):
        q, k, positions = inputs(encoder, seq=seq)
        shapes = [x.shape for x in run(encoder, q, k, positions)]
        true(
            shapes == [q.shape, k.shape],
            f"queries and keys of {seq} tokens must keep their shapes, got "
            f"{[tuple(shape) for shape in shapes]}",
        )
        count = encoder.matrix(positions).shape[-3]
        true(count == seq, f"matrix() of {seq} positions must return {seq} matrices, got {count}")
        empty = q[:0]
        got = tuple(encoder(empty, empty, positions)[0].shape)
        true(got == empty.shape, f"a batch must keep its shape {tuple(empty.shape)}, got {got}")


@ENCODER.holds()
def keys_may_have_other_positions_than_queries(make: Make, run: Mode) -> None:
    """Check decoding, where a new query has another position than most keys.

    The keys are rotated all together, and also one by one.
    """
    encoder = make()
    q, k, positions = inputs(encoder)
    full_q, full_k = encoder(q, k, positions)
    last_q, all_k = run(
        lambda q, k, r: encoder(q[..., -1:, :], k, r[-1:], key_positions=r), q, k, positions
    )
    close(last_q, full_q[..., -1:, :], 1e-12, "the last query")
    close(all_k, full_k, 1e-12, "a key")
    one = run.prepared(
        lambda q, k, r, s: encoder(q, k, r, s)[1], q, k[..., :1, :], positions, positions[:1]
    )
    with run.around():
        each = [one(q, k[..., [t], :], positions, positions[[t]]) for t in range(6)]
    close(torch.cat(each, -2), full_k, 1e-12, "a key rotated alone")


@ENCODER.holds()
def a_cache_can_be_moved_to_new_positions(make: Make, run: Mode) -> None:
    encoder = make().folded()
    _, k, positions = inputs(encoder)
    cached = run(encoder, k, k, positions)[1]
    moved = run(encoder, cached, cached, torch.full_like(positions, -3.5))[1]
    close(moved, encoder(k, k, positions - 3.5)[1], 1e-11, "a key that was moved")


@ENCODER.holds()
def phases_give_the_same_results_as_their_positions(make: Make, run: Mode) -> None:
    encoder = make()
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        q, k, positions = inputs(encoder, seq=5, dtype=dtype)
        here, there = run(
            lambda q, k, r: (encoder(q, k, encoder.phases(r)), encoder(q, k, r)), q, k, positions
        )
        each_close(here, there, 0.0, "a result by phases")
        phases, few = encoder.phases(positions), encoder.phases(positions[:2])
        close(encoder.rotate(q, phases), encoder.rotate(q, positions), 0.0, "a rotated vector")
        apart = encoder(q[..., :2, :], k, positions[:2], positions)
        each_close(encoder(q[..., :2, :], k, few, phases), apart, 0.0, "a result by two phases")
        for batched in (positions.expand(2, -1, -1), positions.expand(1, -1, -1)):
            got, _ = encoder(q, k, encoder.phases(batched))
            limit = 1e-11 if dtype == torch.float64 else 0.05
            close(got, encoder(q, k, positions)[0], limit, "a query by phases of a batch")


@ENCODER.holds()
def phases_keep_gradients_and_precision(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder, seq=3)
    narrow = encoder.phases(positions).to(torch.bfloat16)
    true(
        narrow.cos_sin.dtype == torch.float32,
        f"phases moved to bfloat16 must be float32, got {narrow.cos_sin.dtype}. Angles in bfloat16 "
        "are inaccurate.",
    )
    true(encoder.phases(positions).to("meta").cos_sin.is_meta, "phases must move to a device")
    file = io.BytesIO()
    torch.save(encoder.phases(positions), file)
    file.seek(0)
    loaded = torch.load(file)
    close(loaded.cos_sin, encoder.phases(positions).cos_sin, 0.0, "phases that were saved")
    parameters = [*encoder.parameters()]
    if not parameters:
        return
    found = []
    for phases in (False, True):

        def call(q: Tensor, k: Tensor, r: Tensor, phases: bool = phases) -> tuple[Tensor, Tensor]:
            return encoder(q, k, encoder.phases(r) if phases else r)

        found.append(run.gradients(torch.cat(run(call, q, k, positions), -1), parameters))
    each_close(found[1], found[0], 1e-10, "a gradient through phases")


@ENCODER.holds()
def phases_that_do_not_fit_are_refused(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder, seq=5)
    phases = encoder.phases(positions)
    bad = [encoder.phases(positions[:4]), phases._replace(cos_sin=phases.cos_sin[..., :0])]
    bad.append(phases._replace(cos_sin=phases.cos_sin[..., :1, :, :, :].repeat(9, 1, 1, 1)))
    for wrong in bad:
        refused(encoder, q, k, wrong, words="positions must be phases of shape")
    more = encoder.phases(positions.expand(3, -1, -1))
    refused(encoder.rotate, q, more, words="positions must have leading dimensions that broadcast")
    one = encoder.phases(positions[:1])
    refused(encoder, q, k, phases, one, words="key_positions must be phases of shape")


@ENCODER.holds()
def strides_do_not_matter(make: Make, run: Mode) -> None:
    """Check that views with other strides or offsets give the same result as a contiguous copy."""
    encoder = make()
    q, k, positions = inputs(encoder)
    want = encoder(q, k, positions)[0]
    sliced = torch.zeros(*q.shape[:-1], q.shape[-1] + 3, dtype=q.dtype)[..., 1:-2].copy_(q)
    transposed = q.transpose(-1, -2).contiguous().transpose(-1, -2)
    by_token = q.transpose(-2, -3).contiguous().transpose(-2, -3)
    odd_offset = torch.zeros(q.numel() + 1, dtype=q.dtype)[1:].view_as(q).copy_(q)
    for view in (sliced, transposed, by_token, odd_offset):
        close(run(encoder, view, k, positions)[0], want, 1e-12, "a query with other strides")
    one = q[:1].expand(2, -1, -1, -1)
    close(run(encoder, one, k, positions)[0][1], want[0], 1e-12, "a query that is expanded")


@ENCODER.holds()
def inputs_are_not_changed_and_nan_stays_in_its_token(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder)
    q[0, 0, 2, 0] = torch.nan
    copies = [t.clone() for t in (q, k, positions)]
    encoded = run(encoder, q, k, positions)[0]
    for t, c in zip((q, k, positions), copies, strict=True):
        close(t, c, 0.0, "an argument, which a call must not change,")
    spoiled = encoded.isnan().any(-1)
    true(
        spoiled[0, 0, 2] and spoiled.sum() == 1,
        "a NaN in one query must give a NaN in the result of this query and in no other",
    )


@ENCODER.holds()
def bad_input_is_refused_by_name(make: Make, run: Mode) -> None:
    encoder = make()
    q, k, positions = inputs(encoder)
    d, n = encoder.head_dim, encoder.coord_dim
    more = torch.zeros(6, n + 1)
    shape, weight = "positions must have shape (..., n, coord_dim)", "weight must have shape"
    rows: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
        (encoder, (q[..., :0], k, positions), "q must have shape"),
        (encoder, (q, k, positions[:5]), f"{shape} with n = 6, got (5, {n})"),
        (encoder, (q, k[..., :5, :], positions), "positions must have one row for each of the 5"),
        (encoder, (q, k, more), f"{shape} with coord_dim = {n}, got (6, {n + 1})"),
        (encoder, (q, k, positions.expand(3, -1, -1)), "positions must have leading dimensions"),
        (encoder, (q, k, positions, positions[:2]), "key_positions"),
        (encoder.fold, (torch.zeros(0, 3),), weight),
        (encoder.fold, (torch.zeros(4 * d, 3, 2),), weight),
    ]
    if n == 1:  # positions without a coordinate dimension: the message says how to add it
        rows.append((encoder, (q, k, torch.zeros(6)), "positions[:, None]"))
    if d > 1:
        rows.append((encoder.fold, (torch.zeros(d + 1, 3),), weight))
    if encoder.heads > 1:
        rows.append((encoder, (q[:, :1], k[:, :1], positions), f"{encoder.heads} heads"))
        rows.append((encoder.fold, (torch.zeros(d, 3),), weight))
    for call, arguments, words in rows:
        refused(call, *arguments, words=words)
    for arguments in ((q.long(), k, positions), (q, k, positions > 0)):
        refused(encoder, *arguments, error=TypeError, words="must be")
    # bfloat16 represents only some of the integers above 256
    many = inputs(encoder, seq=300, batch=())
    refused(encoder, *many[:2], torch.full((300, n), 299.0).bfloat16(), words="positions")
