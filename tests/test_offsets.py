"""Scores and blind spots as functions of the offset between a query and a key."""

import math

import pytest
import torch

from lab.theory.offsets import alias_gap, offset_scores
from stringlib.testing import properties
from stringlib.testing.encoders import heads_of, inputs
from tests.encoder_cases import CASES, make


@pytest.mark.proves("eq-grid-score")
@pytest.mark.parametrize("name", CASES)
def test_the_score_is_a_sum_of_waves_in_the_offset(name):
    """And it is the score of every two tokens that are so far apart."""
    encoder = make(name)
    q, k, positions = inputs(encoder, batch=())
    offsets = positions - positions[2]
    own = offset_scores(encoder, q[:, 2], k[:, 2], offsets)
    # the same content everywhere, the query at token 2
    everywhere = k[:, 2:3].expand(-1, len(positions), -1)
    table = properties.logits(encoder, q, everywhere, positions)
    assert properties.largest_difference(own, table[:, 2]) <= 1e-10

    basis = encoder.basis().detach().expand(heads_of(encoder), -1, -1)
    omega = encoder.frequencies().detach().expand(heads_of(encoder), -1, -1)
    pairs = omega.shape[1]
    waves = torch.zeros_like(own)
    for head in range(heads_of(encoder)):
        a, b = basis[head].T @ q[head, 2], basis[head].T @ k[head, 2]
        waves[head] += a[2 * pairs :] @ b[2 * pairs :]  # channels that stand still
        for i in range(pairs):
            x, y = (2 * i, 2 * i + 1) if encoder.layout == "interleaved" else (i, i + pairs)
            size = math.hypot(a[x], a[y]) * math.hypot(b[x], b[y])
            phase = math.atan2(b[y], b[x]) - math.atan2(a[y], a[x])
            waves[head] += size * torch.cos(offsets @ omega[head, i] + phase)
    assert properties.largest_difference(own, waves) <= 1e-10


@pytest.mark.proves("eq-grid-alias")
@pytest.mark.parametrize("name", CASES)
def test_an_offset_is_invisible_exactly_where_the_gap_is_zero(name):
    encoder = make(name)
    _, _, offsets = inputs(encoder)
    matrix = encoder.matrix(offsets)
    eye = torch.eye(encoder.head_dim, dtype=torch.float64)
    chord = torch.linalg.matrix_norm(matrix - eye, ord=2)  # of the plane turned the farthest
    assert properties.largest_difference(chord, 2 * (alias_gap(encoder, offsets) / 2).sin()) <= 1e-7
