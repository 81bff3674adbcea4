"""Data sets from the Hugging Face hub, or from files in the same form."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load(name: str, config: str, path: str | Path | None = None) -> Any:
    """Return a data set: split → column → values.

    The first call downloads it; the package ``datasets`` keeps it, so that later ones need no
    network.

    Args:
        name: Its name on the hub.
        config: Which of its configurations.
        path: A folder with its parquet files, such as ``train-00000-of-00001.parquet`` and
            ``test-00000-of-00001.parquet``; then nothing is downloaded.

    Raises:
        ImportError: If the package ``datasets`` is missing.
        FileNotFoundError: If ``path`` has no such files.
        ConnectionError: If the data set is neither kept nor can be downloaded.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ImportError(
            f"{name} is read by Hugging Face's datasets: pip install 'stringlib[data]'"
        ) from error
    if path is not None:
        files = {
            split: sorted(str(file) for file in Path(path).glob(f"{split}*.parquet"))
            for split in ("train", "test")
        }
        if not all(files.values()):
            raise FileNotFoundError(
                f"path must be a folder with train*.parquet and test*.parquet, got {str(path)!r}"
            )
        return load_dataset("parquet", data_files=files)
    try:
        return load_dataset(name, config)
    except Exception as error:  # a dozen kinds, from several packages
        raise ConnectionError(
            f"{name} is not on this machine and could not be downloaded ({error}). Connect to the "
            f"network once, and it is kept; or download the parquet files of "
            f"https://huggingface.co/datasets/{name}/tree/main/{config} elsewhere and pass their "
            f"folder as path="
        ) from error
