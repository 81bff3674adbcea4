"""Reference implementations of RoPE, its forms for images, and rotations as two reflections."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def apply_rope(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    r"""Rotate queries or keys by RoPE: each channel pair by the token's position times a frequency.

    Pair i consists of the neighbouring channels 2i and 2i + 1. For a token at position t, pair i is
    rotated by the angle :math:`t\,\theta_i`, equation :eq:`eq-rope-pair`.

    Args:
        x: Queries or keys, ``(..., seq, d)`` with even d.
        positions: Position t of each token, ``(..., seq)``.
        frequencies: Frequencies :math:`\theta_i` in radians per position, ``(d // 2,)``.

    Returns:
        The rotated vectors, float64, of the shape of ``x``.

    Raises:
        ValueError: If d is odd or the number of frequencies is not d / 2.

    Source:
        Su et al. 2024 (RoFormer), equation 34.
    """
    if x.shape[-1] % 2 or frequencies.shape != (x.shape[-1] // 2,):
        raise ValueError(
            "x must have an even last dimension d, and frequencies must have shape (d / 2,), "
            f"got shapes {tuple(x.shape)} and {tuple(frequencies.shape)}"
        )
    x, positions, frequencies = x.double(), positions.double(), frequencies.double()
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    angles = positions[..., None] * frequencies
    cos, sin = torch.cos(angles), torch.sin(angles)
    first, second = blocks[..., 0], blocks[..., 1]
    rotated = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
    return rotated.reshape(x.shape)


def rope_matrix(position: float, head_dim: int, base: float = 10000.0) -> Tensor:
    r"""Return the block-diagonal rotation matrix of RoPE at one position, :eq:`eq-telescope`.

    Block i of the matrix R(t) rotates channels 2i and 2i + 1 by the angle :math:`t\,b^{-2i/d}`, in
    radians. For an integer t, the matrix is the power :math:`R(t) = R(1)^t`.

    Args:
        position: Position t.
        head_dim: Even number of channels d.
        base: Base b of the frequencies :math:`b^{-2i/d}`. Default: 10000.

    Returns:
        The matrix R(t), float64, ``(d, d)``.

    Raises:
        ValueError: If d is odd.

    Source:
        Su et al. 2024 (RoFormer), equation 15.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim must be even, got {head_dim}")
    matrix = torch.zeros(head_dim, head_dim, dtype=torch.float64)
    for i in range(head_dim // 2):
        angle = position * base ** (-2 * i / head_dim)
        matrix[2 * i, 2 * i] = matrix[2 * i + 1, 2 * i + 1] = math.cos(angle)
        matrix[2 * i, 2 * i + 1] = -math.sin(angle)
        matrix[2 * i + 1, 2 * i] = math.sin(angle)
    return matrix


def apply_axial_rope(x: Tensor, positions: Tensor, base: float = 100.0) -> Tensor:
    r"""Rotate queries or keys by axial RoPE, where each coordinate has its own channel pairs.

    The pairs are divided among the coordinates as evenly as possible. If some pairs are left over,
    the first coordinates get one more pair each. Pair i of the n pairs of a coordinate has the
    frequency :math:`b^{-i/n}`, equation :eq:`eq-grid-axial`.

    Args:
        x: Queries or keys, ``(..., seq, d)`` with even d.
        positions: Coordinates of each token, ``(seq, coord_dim)``.
        base: Base b of the frequencies, which are in radians per unit of position. Default: 100.

    Returns:
        The rotated vectors, float64, of the shape of ``x``.

    Raises:
        ValueError: If d is odd or there are more coordinates than pairs.

    Source:
        Heo et al. 2024, RoPE-Axial.
    """
    pairs, coord_dim = x.shape[-1] // 2, positions.shape[-1]
    if x.shape[-1] % 2 or pairs < coord_dim:
        raise ValueError(
            f"x must have an even last dimension of at least 2 * coord_dim = {2 * coord_dim}, got "
            f"shape {tuple(x.shape)}. Each coordinate of positions needs a pair of channels."
        )
    rotated = []
    first = 0  # first channel of the coordinate
    for k in range(coord_dim):
        own = pairs // coord_dim + (1 if k < pairs % coord_dim else 0)
        frequencies = torch.tensor([base ** (-i / own) for i in range(own)], dtype=torch.float64)
        channels = x[..., first : first + 2 * own]
        rotated.append(apply_rope(channels, positions[:, k], frequencies))
        first += 2 * own
    return torch.cat(rotated, -1)


def mixed_start(head_dim: int, angle: float, base: float = 10.0) -> tuple[Tensor, Tensor]:
    r"""Return the initial frequencies of one head of RoPE-Mixed, equation :eq:`eq-grid-start`.

    The frequency of a pair is a vector :math:`(\theta^x, \theta^y)`. The vectors of the first d/4
    pairs have the direction ``angle`` and the lengths :math:`b^{-4t/d}` for t = 0, …, d/4 − 1. The
    vectors of the last d/4 pairs have the same lengths and the direction ``angle`` + π/2.

    Args:
        head_dim: Number of channels d of a head, a multiple of 4.
        angle: Direction in radians. RoPE-Mixed draws it at random for each head.
        base: Base b of the lengths. Default: 10.

    Returns:
        :math:`\theta^x` and :math:`\theta^y` in radians per unit of position, float64,
        ``(d // 2,)`` each.

    Raises:
        ValueError: If 4 does not divide d.

    Source:
        Heo et al. 2024, RoPE-Mixed.
    """
    if head_dim % 4:
        raise ValueError(f"head_dim must be a multiple of 4, got {head_dim}")
    along_x, along_y = [], []
    for direction in (angle, angle + math.pi / 2):
        for t in range(head_dim // 4):
            magnitude = base ** (-t / (head_dim / 4))
            along_x.append(magnitude * math.cos(direction))
            along_y.append(magnitude * math.sin(direction))
    return torch.tensor(along_x).double(), torch.tensor(along_y).double()


def apply_mixed_rope(x: Tensor, positions: Tensor, along_x: Tensor, along_y: Tensor) -> Tensor:
    r"""Rotate queries or keys by RoPE-Mixed, where each angle depends on both coordinates.

    Pair t consists of the neighbouring channels 2t and 2t + 1. For a token at :math:`(p^x, p^y)`,
    pair t is rotated by the angle :math:`\theta^x_t p^x + \theta^y_t p^y`, equation
    :eq:`eq-grid-mixed` for two coordinates. The pair is treated as a complex number and multiplied
    by :math:`e^{\mathrm{i}(\theta^x_t p^x + \theta^y_t p^y)}`.

    Args:
        x: Queries or keys, ``(..., heads, seq, d)`` with even d.
        positions: Coordinates :math:`(p^x, p^y)` of each token, ``(seq, 2)``.
        along_x: Frequencies :math:`\theta^x` in radians per unit of x, ``(heads, d // 2)``.
        along_y: Frequencies :math:`\theta^y` in radians per unit of y, ``(heads, d // 2)``.

    Returns:
        The rotated vectors, float64, of the shape of ``x``.

    Raises:
        ValueError: If ``positions`` does not have two coordinates.

    Source:
        Heo et al. 2024, RoPE-Mixed.
    """
    if positions.shape[-1] != 2:
        raise ValueError(f"positions must have shape (seq, 2), got {tuple(positions.shape)}")
    x, positions = x.double(), positions.double()
    position_x, position_y = positions[:, 0], positions[:, 1]
    angle = torch.einsum("n,ht->hnt", position_x, along_x.double())
    angle = angle + torch.einsum("n,ht->hnt", position_y, along_y.double())
    numbers = torch.complex(x[..., 0::2], x[..., 1::2])
    rotated = numbers * torch.exp(1j * angle)
    return torch.stack([rotated.real, rotated.imag], -1).reshape(x.shape)


def householder_2d(alpha: Tensor) -> Tensor:
    r"""Return the 2 × 2 reflection matrices whose mirrors are perpendicular to given directions.

    The vector :math:`v = (\cos\alpha, \sin\alpha)` is perpendicular to the mirror. The reflection
    matrix is :math:`H(\alpha) = I - 2vv^\top/\|v\|^2`, equation :eq:`eq-reflection-householder`. A
    single reflection with :math:`\alpha = \omega t` at position t already gives relative scores.
    This reflection is a rotation by :math:`-2\omega t`, followed by a change of sign of the first
    channel. The change of sign is the same at all positions, so it cancels in the scores,
    :eq:`eq-reflection-single`.

    Args:
        alpha: Angle of the vector v in radians, of any shape ``(...)``.

    Returns:
        The matrices, float64, ``(..., 2, 2)``.

    Source:
        Householder 1958, the elementary reflection.
    """
    alpha = alpha.double()
    v = torch.stack([torch.cos(alpha), torch.sin(alpha)], -1)
    outer = v[..., :, None] * v[..., None, :]
    squared_norm = torch.sum(v * v, -1)[..., None, None]
    return torch.eye(2, dtype=torch.float64, device=alpha.device) - 2 * outer / squared_norm


def apply_reflection_rope(x: Tensor, positions: Tensor, omega1: Tensor, omega2: Tensor) -> Tensor:
    r"""Rotate each pair of channels of each token by two reflections.

    At position t, channel pair i is multiplied by
    :math:`H(t\,\omega^{(2)}_i)\,H(t\,\omega^{(1)}_i)`, where H is :func:`householder_2d`. The two
    reflections are together a rotation by twice the angle between their mirrors,
    :math:`2t\,(\omega^{(2)}_i - \omega^{(1)}_i)`, equation :eq:`eq-reflection-rotation`.

    Args:
        x: Queries or keys, ``(..., seq, d)`` with even d. Pairs are neighbouring channels.
        positions: Position t of each token, ``(..., seq)``.
        omega1: Frequencies :math:`\omega^{(1)}_i` of the reflection that is applied first, in
            radians per position, ``(d // 2,)``.
        omega2: Frequencies :math:`\omega^{(2)}_i` of the reflection that is applied second, in
            radians per position, ``(d // 2,)``.

    Returns:
        The rotated vectors, float64, of the shape of ``x``.

    Raises:
        ValueError: If d is odd, or ``omega1`` or ``omega2`` does not have d / 2 entries.
    """
    wanted = (x.shape[-1] // 2,)
    if x.shape[-1] % 2 or omega1.shape != wanted or omega2.shape != wanted:
        raise ValueError(
            "x must have an even last dimension d, and omega1 and omega2 must have shape (d / 2,), "
            f"got shapes {tuple(x.shape)}, {tuple(omega1.shape)} and {tuple(omega2.shape)}"
        )
    blocks = x.double().reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    positions = positions.double()[..., None]
    first = householder_2d(positions * omega1.double())
    second = householder_2d(positions * omega2.double())
    rotations = second @ first
    return torch.einsum("...ij,...j->...i", rotations, blocks).reshape(x.shape)


def get_2d_positions(num_patches_h: int, num_patches_w: int, normalize: bool = True) -> Tensor:
    """Return the coordinates (column, row) of the patches of an image, row by row.

    The column is the first coordinate, x. The row is the second coordinate, y.

    Args:
        num_patches_h: Number of rows.
        num_patches_w: Number of columns.
        normalize: If False, coordinates are 0, 1, 2, … If True (default), each coordinate is
            divided by its largest value and lies between 0 and 1. The distance of neighbouring
            patches then depends on the resolution of the image. For this reason
            :func:`stringlib.positions.grid_positions` does not divide its coordinates.

    Returns:
        The coordinates, float64, ``(num_patches_h * num_patches_w, 2)``. With a single row all y
        are 0, and with a single column all x are 0, because a division of 0 by 0 would give NaN.
    """
    rows = [[float(x), float(y)] for y in range(num_patches_h) for x in range(num_patches_w)]
    positions = torch.tensor(rows, dtype=torch.float64).reshape(-1, 2)
    if normalize:
        positions[:, 0] /= max(num_patches_w - 1, 1)
        positions[:, 1] /= max(num_patches_h - 1, 1)
    return positions
