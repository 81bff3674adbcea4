"""The search of the pages: what it finds first, in either spelling, and where a hit leads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from tests.site.reader import DESKTOP, Reader

FIRST = {
    "how does rotary embedding work": "notebooks/02_rope",
    "positional encoding": "notebooks/01_why_positions",
    "NTK aware scaling": "notebooks/03_rope_decay",
    "rope_scaling": "notebooks/03_rope_decay",
    "GQA keys": "notebooks/09_string_at_inference",
    "fold into weights": "notebooks/09_string_at_inference",
    "attention sink": "notebooks/16_gating",
    "mamba": "notebooks/17_decay_and_state",
    "induction head": "notebooks/19_associative_recall",
    "224 to 448": "book/choose",
    "longer context than training": "notebooks/22_length_extrapolation",
    "flash attention speed": "notebooks/23_speed",
    "which method should I use": "book/choose",
    "image patches position": "book/choose",
    "NaN in linear attention": "book/symptoms",
    "loss fine but lookups fail": "book/symptoms",
    "bf16 precision problem at long context": "notebooks/02_rope",
    "3d": "notebooks/04_rope_2d_3d",
    "2d rope for vision transformer": "notebooks/04_rope_2d_3d",
    "rope for video 3d": "notebooks/04_rope_2d_3d",
    "which encoder for point clouds": "notebooks/04_rope_2d_3d",
    "in the cloud": "book/running",
    "interpolate position embeddings different image size": "notebooks/20_vision_transformer",
    "my model forgets the key": "notebooks/19_associative_recall",
    "kimi linear": "notebooks/18_delta_rule",
    "negative attention weights linear attention nan": "book/symptoms",
    "omega": "book/notation",
    "rope_theta": "notebooks/02_rope",
    "why 10000": "notebooks/02_rope",
    "rotate half vs interleaved": "notebooks/02_rope",
    "dot product only depends on distance": "notebooks/02_rope",
    "absolute position embedding": "notebooks/01_why_positions",
    "lie algebra": "notebooks/05_string",
    "state space model": "notebooks/10_linear_attention",
    "circulant matrix eigenvalues": "notebooks/12_circulant_favor",
    "forget gate": "notebooks/17_decay_and_state",
    "parity state tracking": "notebooks/18_delta_rule",
    "zoology": "notebooks/19_associative_recall",
    "hybrid model": "notebooks/21_language_model",
    "why is softmax better at copying": "notebooks/21_language_model",
    "memory of attention": "notebooks/23_speed",
    "load a huggingface model": "book/released_models",
    "timm vit rope": "book/released_models",
    "slow learned encoder": "book/symptoms",
    "own dataset": "book/bring_your_own",
    "class token position": "notebooks/20_vision_transformer",
    "DeltaWeight": "notebooks/18_delta_rule",
    "chunkwise parallel training": "notebooks/17_decay_and_state",
    "Transformers are RNNs": "notebooks/10_linear_attention",
    "decoding differs from forward pass": "book/symptoms",
    "replace rope in pretrained model": "book/released_models",
    "exercise solutions": "book/exercises",
    "learning rate of rope frequencies": "book/symptoms",
    "cross attention": "notebooks/24_in_models",
    "permutation equivariance": "notebooks/01_why_positions",
    "T5 relative position bias": "notebooks/01_why_positions",
    "long-term decay of RoPE": "notebooks/03_rope_decay",
    "axial rope vs mixed rope": "notebooks/04_rope_2d_3d",
    "merge rotation into query projection": "notebooks/09_string_at_inference",
    "redraw features during training": "notebooks/19_associative_recall",
    "numerical stabilizer max subtraction": "notebooks/11_favor_plus",
    "structured orthogonal random features Hadamard": "notebooks/12_circulant_favor",
    "denominator negative linear attention": "book/symptoms",
    "exponential forgetting half life": "notebooks/17_decay_and_state",
    "eigenvalue -1 parity": "notebooks/18_delta_rule",
    "token shift short convolution": "notebooks/19_associative_recall",
    "roofline arithmetic intensity": "notebooks/23_speed",
    "left padding": "book/released_models",
    "initialize learned encoder": "book/training",
    "apple silicon gpu": "book/running",
    "cite this book": "book/new",
    "attention is permutation invarient": "notebooks/01_why_positions",
    "Yang DeltaNet chunk": "notebooks/18_delta_rule",
    "online learning view of delta rule": "notebooks/18_delta_rule",
    "Katharopoulos": "notebooks/10_linear_attention",
}
AMONG_TWO = {
    "contribute a method": "book/bring_your_own",
    "how fast is linear attention": "notebooks/23_speed",
    "unit norm queries": "notebooks/14_toeplitz_rpe",
    "2202.08791": "notebooks/13_cosformer",
    "fine-tune higher resolution": "book/choose",
    "my performer with rope is worse": "book/symptoms",
    "a roatry encoder for images": "book/choose",
}


@pytest.fixture(scope="module")
def window(browser: Any, site: Path) -> Iterator[Reader]:
    reader = Reader(browser, **DESKTOP)
    reader.page.goto((site / "search.html").as_uri())
    yield reader
    reader.close()


def found(window: Reader, query: str) -> list[dict[str, Any]]:
    """Return what a query finds, best first."""
    hits: list[dict[str, Any]] = window.page.evaluate("query => bookSearch(query)", query)
    return hits


@pytest.mark.parametrize(
    ("query", "page", "places"),
    [(q, p, 1) for q, p in FIRST.items()] + [(q, p, 2) for q, p in AMONG_TWO.items()],
)
def test_a_question_finds_its_page(query: str, page: str, places: int, window: Reader) -> None:
    assert page in [hit["page"] for hit in found(window, query)[:places]]


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("kernelised", "kernelized"),
        ("normalise", "normalize"),
        ("generalisation", "generalization"),
        ("stabiliser", "stabilizer"),
        ("neighbours", "neighbors"),
        ("colour", "color"),
        ("analyse", "analyze"),
        ("centre", "center"),
    ],
)
def test_either_spelling_finds_the_same(british: str, american: str, window: Reader) -> None:
    one, other = ([(h["page"], h["anchor"]) for h in found(window, w)] for w in (british, american))
    assert one == other != []


def test_a_hit_says_where_it_is_and_opens_there(browser: Any, site: Path) -> None:
    reader = Reader(browser, **DESKTOP)
    page = reader.page
    page.goto((site / "search.html").as_uri() + f"?q={quote_plus('exact lookup constant memory')}")
    hit = page.locator("ul.search > li").first
    assert (
        "places for “exact lookup constant memory”" in page.locator(".search-summary").inner_text()
    )
    assert hit.locator("mark").first.inner_text().lower() == "exact"
    target = hit.locator("a").get_attribute("href")
    assert re.match(r"book/choose\.html#constant-memory-while-writing:~:text=", target)
    hit.locator("a").click()
    page.wait_for_url("**/choose.html*")
    assert page.locator("#constant-memory-while-writing").first.is_visible()
    reader.close()


def test_excerpts_have_no_tex_and_a_page_no_more_than_three(window: Reader) -> None:
    for query in ("variance", "orthogonal matrix", "frequency"):
        hits = found(window, query)
        assert len(hits) > 8
        assert not [h for h in hits if re.search(r"[\\$]|_\{", h["excerpt"]["text"] + h["heading"])]
        pages = [h["page"] for h in hits]
        assert max(map(pages.count, pages)) <= 3


def test_a_paper_is_found_where_it_is_listed_and_where_it_is_cited(
    window: Reader, site: Path
) -> None:
    listed = found(window, "Fleuret")[0]
    assert (listed["page"], listed["heading"]) == (
        "book/bibliography",
        "Katharopoulos et al., 2020",
    )
    page = (site / "book/bibliography.html").read_text(encoding="utf8")
    assert f'id="{listed["anchor"]}"' in page
    said = found(window, "kernelised attention replaced by features elu")[0]["excerpt"]["text"]
    assert "Katharopoulos et al. [2020] replaced it by features" in said


def test_what_is_nowhere_is_said_to_be(browser: Any, site: Path) -> None:
    reader = Reader(browser, **DESKTOP)
    reader.page.goto((site / "search.html").as_uri() + "?q=qqxyzzy")
    assert reader.page.locator(".search-summary").inner_text().startswith("No page has “qqxyzzy”")
    assert reader.page.locator("ul.search > li").count() == 0
    assert reader.page.evaluate("bookSearch('constructor').length") >= 0  # no word breaks it
    reader.close()
