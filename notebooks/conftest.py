"""``pytest --nbval notebooks`` compares numbers as numbers, as ``make test`` does."""

from tools.nbval_numbers import pytest_itemcollected

__all__ = ["pytest_itemcollected"]
