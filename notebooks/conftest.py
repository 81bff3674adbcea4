"""``pytest --nbval notebooks`` runs and compares chapters as ``make test`` does."""

from typing import Any


def pytest_configure(config: Any) -> None:
    """Take in what compares numbers as numbers."""
    config.pluginmanager.import_plugin("tools.nbval_numbers")
