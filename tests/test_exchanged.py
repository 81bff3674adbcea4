"""The record of released models, its page's numbers, and the script that makes it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from docutils import nodes
from torch import nn

from _ext import book_released
from benchmarks import released, small
from book import exchanged
from tests.test_interop import other

ROWS = exchanged.measured()
FEW = ("qwen2_vl", "codegen", "wav2vec2_conformer")


def test_nearly_all_families_are_within_rounding() -> None:
    close = [row for row in ROWS.values() if exchanged.within(row)]
    assert all(len(cells) == len(exchanged.HEADS) for cells in exchanged.table())
    assert len(close) >= 0.97 * len(ROWS) > 190
    assert all(exchanged.why(row) for row in ROWS.values() if not exchanged.within(row))
    assert all(row["lines"] <= 14 for row in close)


def test_whole_models_were_asked_everything() -> None:
    for name, row in ROWS.items():
        if exchanged.within(row) and "tables alone" not in row["model"]:
            assert "graph" in row, name
            text = row.keys() & {"dynamic", "padding"} and name != "siglip2 NaFlex"
            assert not text or {"bfloat16 theirs", "bfloat16 ours"} <= row.keys(), name
    assert sum("tables alone" in row.get("model", "") for row in ROWS.values()) <= 35


def test_no_narrow_model_is_worse_than_before() -> None:
    for name, row in ROWS.items():
        theirs, ours = (row.get(f"bfloat16 {whose}") for whose in ("theirs", "ours"))
        if isinstance(theirs, float) and exchanged.within(row):
            assert ours <= 2 * theirs + 1e-3, name


def test_what_folds_through_norms_is_told_of_each_family() -> None:
    behind, _, equal, never = (names.split(", ") for _, _, names in exchanged.norms())
    assert "hunyuan_v1_dense" in behind
    assert {"qwen3", "gemma3", "olmo2", "glm4_moe", "gemma3n", "lfm2_moe"} <= {*equal}
    assert {"persimmon", "chameleon", "cohere", "phi", "stablelm"} <= {*never}
    told = {row.get("norms") for row in ROWS.values()} - {None}
    assert {word for words in told for word in words.split(", ")} == set(exchanged.NORMS)


@pytest.mark.parametrize(
    ("norm", "word"),
    [
        (nn.RMSNorm(8, elementwise_affine=False), "any scales"),
        (nn.RMSNorm(8), "equal scales"),
        (nn.LayerNorm(8), "none"),
    ],
)
def test_norms_are_found_and_asked(norm: nn.Module, word: str) -> None:
    layer = nn.ModuleDict({"q_norm": norm, "k_norm": copy.deepcopy(norm), "to_q": nn.Linear(8, 8)})
    layer.head_dim = 8  # type: ignore[assignment]
    assert released.through_norms(nn.ModuleList([layer, layer])) == word
    plain = nn.ModuleDict({"q_norm": nn.Identity(), "k_norm": nn.Identity()})
    assert released.through_norms(plain) is None


def family_of(name: str) -> tuple[Any, list[str]]:
    """Return the file of a family's model and the classes that turn."""
    other("transformers")
    return next((module, kinds) for found, module, kinds in released.families() if found == name)


@torch.no_grad()
@pytest.mark.parametrize("family", FEW)
def test_a_family_is_measured_as_the_record_says(family: str) -> None:
    module, kinds = family_of(family)
    row = released.measure(family, module, kinds)
    assert exchanged.within(row)
    assert row["model"] == ROWS[family]["model"]
    assert row.get("static") == ROWS[family].get("static")


@torch.no_grad()
def test_scales_of_layers_near_zero_do_not_hide_a_tower() -> None:
    """LayerScale begins at 1e-5: behind that, a wrong encoder changes outputs by 3e-6."""
    told = {"img_size": (64, 96), "num_classes": 5, "depth": 2}
    theirs = small.filled(other("timm").create_model("vit_small_patch16_dinov3", **told))
    kinds, given = ["RotaryEmbeddingDinoV3"], {"x": torch.randn(1, 3, 64, 96)}
    ours = copy.deepcopy(theirs)
    released.exchange(ours, kinds)
    assert released.seen(theirs, ours, given, kinds)
    assert released.far(ours(**given), theirs(**given)) < 1e-5  # a copy was made faster
    scales = [p for n, p in theirs.named_parameters() if n.endswith("gamma_1")]
    assert scales
    for model in (theirs, ours):
        for name, parameter in model.named_parameters():
            if "gamma" in name:
                nn.init.constant_(parameter, 1e-5)
    assert not released.seen(theirs, ours, given, kinds)


@torch.no_grad()
@pytest.mark.parametrize("family", ["gptj", "roformer", "clvp"])
def test_a_table_that_a_layer_keeps_can_be_wrong_too(family: str) -> None:
    """So the guard holds for lines of a class, which leave no encoder behind."""
    module, kinds = family_of(family)
    kind = next(
        each for each in vars(module).values()
        if isinstance(each, type) and each.__name__.endswith(("Model", "ClvpEncoder"))
        and each.__module__ == module.__name__ and not each.__name__.endswith("PreTrainedModel")
    )  # fmt: skip
    config = next(small.attempts(kind.config_class, family, False))
    theirs = small.build(kind, config)
    assert theirs is not None
    ours, given = copy.deepcopy(theirs), {"input_ids": small.tokens()}
    released.exchange(ours, kinds)
    assert released.far(ours(**given), theirs(**given)) < 1e-5
    assert released.seen(theirs, ours, given, kinds)
    assert released.seen(theirs, ours, given, []) == (family == "clvp")


def test_a_table_marks_columns_of_plain_numbers() -> None:
    def cell(text: str) -> nodes.entry:
        return nodes.entry("", nodes.paragraph(text=text))

    rows = [("name", "n", "words"), ("a", "4,160", "yes"), ("b", "–", "12 of 14")]
    group = nodes.tgroup("", *(nodes.row("", *map(cell, row)) for row in rows))
    book_released.align(nodes.table("", group))
    marked = [[bool(e["classes"]) for e in row.findall(nodes.entry)] for row in group.children]
    assert marked == [[False, True, False]] * 3
