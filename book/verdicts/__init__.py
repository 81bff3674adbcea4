"""What every claim of a page rests on: which comparisons, among how many, and what they tell.

:mod:`book.claims` holds the words of a page to it.
"""

from __future__ import annotations

from book.verdicts import images, recall, speed, text

FAMILIES = recall.FAMILIES | images.FAMILIES | text.FAMILIES | speed.FAMILIES
"""Name → comparisons of one record that are looked at together."""
