"""What every claim of a page rests on: which comparisons, among how many, and what they tell.

:mod:`book.claims` holds the words of a page to it, and its numbers to what :data:`MEASURES` has.
"""

from __future__ import annotations

from book.verdicts import images, recall, speed, text
from book.verdicts.values import MEASURES

__all__ = ["FAMILIES", "MEASURES"]

FAMILIES = recall.FAMILIES | images.FAMILIES | text.FAMILIES | speed.FAMILIES
"""Name → comparisons of one record that are looked at together."""
