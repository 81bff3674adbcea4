"""Data sets from the Hugging Face hub, or from files in the same format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

REVISIONS = {
    "Salesforce/wikitext": "b08601e04326c79dfdd32d625aee71d232d685c3",
    "ylecun/mnist": "77f3279092a1c1579b2250db8eafed0ad422088c",
    "uoft-cs/cifar10": "0b2714987fa478483af9968de7c934580d0bb9a2",
}
"""Commit of each data set that is read, by name, so that a later change has no effect."""


def load(name: str, config: str, path: str | Path | None = None) -> Any:
    """Return a data set as a dictionary: split → column → values.

    The first call downloads the data set. The package ``datasets`` stores it, so later calls need
    no network.

    Args:
        name: Name of the data set on the hub, one of :data:`REVISIONS`.
        config: Name of its configuration.
        path: Folder with the parquet files of the data set, such as
            ``train-00000-of-00001.parquet`` and ``test-00000-of-00001.parquet``. With a folder,
            nothing is downloaded.

    Raises:
        ImportError: If the package ``datasets`` is missing.
        FileNotFoundError: If ``path`` does not contain the files.
        ConnectionError: If the data set is not on this machine and cannot be downloaded.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ImportError(
            f"the data set {name} needs the package datasets. Run pip install 'stringlib[data]'."
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
        return load_dataset(name, config, revision=REVISIONS[name])
    except Exception as error:  # a dozen kinds, from several packages
        raise ConnectionError(
            f"{name} is not on this machine and could not be downloaded ({error}). Connect to the "
            "network and try again: the data set is then kept. Or download the parquet files from "
            f"https://huggingface.co/datasets/{name}/tree/{REVISIONS[name]}/{config} on another "
            "machine, and pass their folder as path."
        ) from error
