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
    "RoPE": "notebooks/02_rope",
    "how does rotary embedding work": "notebooks/02_rope",
    "positional encoding": "notebooks/01_why_positions",
    "learned position table": "notebooks/01_why_positions",
    "biases ALiBi slope": "notebooks/01_why_positions",
    "bfloat16 positions": "notebooks/02_rope",
    "yarn": "notebooks/03_rope_decay",
    "NTK aware scaling": "notebooks/03_rope_decay",
    "rope_scaling": "notebooks/03_rope_decay",
    "commuting generators": "notebooks/05_string",
    "circulant string": "notebooks/06_circulant_string",
    "Cayley": "notebooks/07_cayley_string",
    "householder": "notebooks/08_reflections",
    "GQA": "notebooks/09_string_at_inference",
    "GQA keys": "notebooks/09_string_at_inference",
    "fold into weights": "notebooks/09_string_at_inference",
    "linear attention": "notebooks/10_linear_attention",
    "FAVOR+": "notebooks/11_favor_plus",
    "orthogonal features": "notebooks/11_favor_plus",
    "softmax kernel estimate": "notebooks/11_favor_plus",
    "simplex": "notebooks/12_circulant_favor",
    "cosFormer": "notebooks/13_cosformer",
    "FFT Toeplitz": "notebooks/14_toeplitz_rpe",
    "gate": "notebooks/16_gating",
    "attention sink": "notebooks/16_gating",
    "mamba": "notebooks/17_decay_and_state",
    "RetNet": "notebooks/17_decay_and_state",
    "gated linear attention": "notebooks/17_decay_and_state",
    "delta rule": "notebooks/18_delta_rule",
    "associative recall": "notebooks/19_associative_recall",
    "induction head": "notebooks/19_associative_recall",
    "performer digits": "notebooks/20_vision_transformer",
    "224 to 448": "book/choose",
    "perplexity": "notebooks/21_language_model",
    "needle": "notebooks/22_length_extrapolation",
    "length extrapolation": "notebooks/22_length_extrapolation",
    "longer context than training": "notebooks/22_length_extrapolation",
    "kv cache size": "notebooks/23_speed",
    "flash attention speed": "notebooks/23_speed",
    "exact lookup constant memory": "book/choose",
    "which method should I use": "book/choose",
    "image patches position": "book/choose",
    "NaN in linear attention": "book/symptoms",
    "loss fine but lookups fail": "book/symptoms",
    "bf16": "notebooks/02_rope",
    "bf16 precision problem at long context": "notebooks/02_rope",
    "3d": "notebooks/04_rope_2d_3d",
    "2D RoPE": "notebooks/04_rope_2d_3d",
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
    "swin": "notebooks/01_why_positions",
    "lie algebra": "notebooks/05_string",
    "householder product": "notebooks/08_reflections",
    "state space model": "notebooks/10_linear_attention",
    "variance of random features": "notebooks/11_favor_plus",
    "circulant matrix eigenvalues": "notebooks/12_circulant_favor",
    "forget gate": "notebooks/17_decay_and_state",
    "parity state tracking": "notebooks/18_delta_rule",
    "deltanet": "notebooks/18_delta_rule",
    "zoology": "notebooks/19_associative_recall",
    "hybrid model": "notebooks/21_language_model",
    "why is softmax better at copying": "notebooks/21_language_model",
    "memory of attention": "notebooks/23_speed",
    "load a huggingface model": "book/released_models",
    "timm vit rope": "book/released_models",
    "slow learned encoder": "book/symptoms",
    "own dataset": "book/bring_your_own",
    "glossary": "book/terms",
    "notation": "book/notation",
    "aliasing": "notebooks/04_rope_2d_3d",
    "class token position": "notebooks/20_vision_transformer",
    "CirculantSTRING": "notebooks/06_circulant_string",
    "DeltaWeight": "notebooks/18_delta_rule",
    "chunkwise parallel training": "notebooks/17_decay_and_state",
    "Transformers are RNNs": "notebooks/10_linear_attention",
    "decoding differs from forward pass": "book/symptoms",
    "replace rope in pretrained model": "book/released_models",
    "errata": "book/corrections",
    "playground": "book/try",
    "exercise solutions": "book/exercises",
    "learning rate of rope frequencies": "book/symptoms",
    "fast weights": "notebooks/18_delta_rule",
    "nyquist": "notebooks/04_rope_2d_3d",
    "cross attention": "notebooks/24_in_models",
    "errors in the paper": "book/corrections",
    "permutation equivariance": "notebooks/01_why_positions",
    "NoPE": "notebooks/22_length_extrapolation",
    "T5 relative position bias": "notebooks/01_why_positions",
    "KERPLE": "notebooks/01_why_positions",
    "long-term decay of RoPE": "notebooks/03_rope_decay",
    "exponential integral": "notebooks/03_rope_decay",
    "position interpolation": "notebooks/03_rope_decay",
    "axial rope vs mixed rope": "notebooks/04_rope_2d_3d",
    "block size": "notebooks/06_circulant_string",
    "sparse skew symmetric": "notebooks/07_cayley_string",
    "merge rotation into query projection": "notebooks/09_string_at_inference",
    "qk norm": "notebooks/09_string_at_inference",
    "redraw features during training": "notebooks/19_associative_recall",
    "numerical stabilizer max subtraction": "notebooks/11_favor_plus",
    "structured orthogonal random features Hadamard": "notebooks/12_circulant_favor",
    "denominator negative linear attention": "book/symptoms",
    "rolled features": "notebooks/15_rotations_meet_linear_attention",
    "RWKV": "notebooks/17_decay_and_state",
    "exponential forgetting half life": "notebooks/17_decay_and_state",
    "eigenvalue -1 parity": "notebooks/18_delta_rule",
    "token shift short convolution": "notebooks/19_associative_recall",
    "ViT patch embeddings": "notebooks/20_vision_transformer",
    "roofline arithmetic intensity": "notebooks/23_speed",
    "left padding": "book/released_models",
    "initialize learned encoder": "book/training",
    "colab": "book/running",
    "apple silicon gpu": "book/running",
    "cite this book": "book/new",
    "attention is permutation invarient": "notebooks/01_why_positions",
    "Yang DeltaNet chunk": "notebooks/18_delta_rule",
    "online learning view of delta rule": "notebooks/18_delta_rule",
    "pdf": "book/running",
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
