"""The search of the pages: what it finds first, in either spelling, and where a hit leads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from tests.site.reader import DESKTOP, Reader

FIRST = """
notebooks/02_rope: how does rotary embedding work
notebooks/02_rope: rope_theta
notebooks/01_why_positions: positional encoding; attention is permutation invarient
notebooks/03_rope_decay: NTK aware scaling; rope_scaling
notebooks/09_string_at_inference: GQA keys; fold into weights
notebooks/16_gating: attention sink
notebooks/17_decay_and_state: mamba; forget gate; chunkwise parallel training
notebooks/19_associative_recall: induction head; my model forgets the key; zoology
book/choose: 224 to 448; which method should I use
notebooks/22_length_extrapolation: longer context than training
notebooks/23_speed: flash attention speed
book/symptoms: NaN in linear attention; loss fine but lookups fail
book/symptoms: decoding differs from forward pass
notebooks/04_rope_2d_3d: 3d; which encoder for point clouds
book/running: in the cloud
notebooks/18_delta_rule: kimi linear; parity state tracking; DeltaWeight; Yang DeltaNet chunk
notebooks/18_delta_rule: online learning view of delta rule
notebooks/05_string: lie algebra
notebooks/10_linear_attention: state space model; Katharopoulos
notebooks/12_circulant_favor: circulant matrix eigenvalues
notebooks/21_language_model: hybrid model; why is softmax better at copying
book/released_models: load a huggingface model
notebooks/20_vision_transformer: class token position
book/exercises: exercise solutions
notebooks/24_in_models: cross attention
book/training: initialize learned encoder
book/new: cite this book
"""
AMONG_TWO = """
book/bring_your_own: contribute a method
notebooks/14_toeplitz_rpe: unit norm queries
notebooks/13_cosformer: 2202.08791
book/choose: fine-tune higher resolution
book/training_stack: activation checkpointing; FSDP2; LoRA with peft
book/symptoms: my performer with rope is worse
book/notation: omega
notebooks/02_rope: bf16 precision problem at long context
notebooks/04_rope_2d_3d | notebooks/20_vision_transformer: 2d rope for vision transformer
notebooks/23_speed: memory of attention
"""
"""The page that is found first or second, and what is asked."""
AMONG_THREE = """
book/bring_your_own: custom encoder
book/choose | notebooks/20_vision_transformer: a roatry encoder for images
book/corrections: errors in the paper
book/notation: symbol kappa
book/released_models | notebooks/24_in_models: add an encoder to a pretrained model
book/released_models | notebooks/24_in_models: replace rope in pretrained model
book/released_models | book/symptoms: left padding
book/running: install on windows; run in colab
book/released_models | notebooks/20_vision_transformer: timm vit rope
book/symptoms: denominator negative linear attention
book/symptoms: nan loss; loss does not decrease; attention drifts in half precision
book/symptoms: gibberish output after loading checkpoint
book/terms | notebooks/20_vision_transformer: statistically significant
book/training: hyperparameters; warmup learning rate schedule
book/training | notebooks/06_circulant_string: learning rate of rope frequencies
book/training | notebooks/21_language_model: ablation
notebooks/01_why_positions: absolute vs relative position embedding; alibi slopes
notebooks/01_why_positions | notebooks/02_rope: dot product only depends on distance
notebooks/02_rope: rotate half interleaved layout
book/terms | notebooks/02_rope: why 10000
notebooks/03_rope_decay: rope scaling; yarn; position interpolation; long-term decay of rope
notebooks/03_rope_decay: ntk aware
notebooks/04_rope_2d_3d: 2d rope vision
notebooks/05_string: non-commuting generators
notebooks/06_circulant_string: learned rope frequencies
notebooks/07_cayley_string: learned orthogonal basis
notebooks/08_reflections: householder reflections
notebooks/09_string_at_inference: merge rotation into weights
notebooks/10_linear_attention: query-key similarity; similarity function; kernel trick
notebooks/11_favor_plus: orthogonal random features; performer variance
notebooks/11_favor_plus: numerical stabilizer max subtraction
notebooks/12_circulant_favor: structured random projection fft
notebooks/13_cosformer: cosine reweighting
notebooks/14_toeplitz_rpe: relative position bias for linear attention
notebooks/15_rotations_meet_linear_attention: rope with linear attention
notebooks/16_gating: attention sink; sigmoid output gate; softmax off by one
notebooks/17_decay_and_state: forget gate; data-dependent decay; selective state space model
notebooks/17_decay_and_state: gated linear attention
notebooks/18_delta_rule: delta rule beta; negative eigenvalues state tracking
notebooks/19_associative_recall: token shift convolution; mqar; redraw random features
notebooks/20_vision_transformer: image patches position
notebooks/20_vision_transformer | book/choose | book/terms: statistical significance
notebooks/21_language_model: why does my model not repeat a passage; copy task
notebooks/21_language_model: perplexity bits per byte
notebooks/22_length_extrapolation: long context; needle in a haystack; length generalization
notebooks/22_length_extrapolation: effective context window; passkey retrieval
notebooks/22_length_extrapolation | notebooks/03_rope_decay: train short test long
notebooks/23_speed: flash attention; throughput; inference latency; gpu memory out of memory
notebooks/23_speed: tokens per second; how fast is linear attention
notebooks/23_speed | notebooks/09_string_at_inference: kv cache
notebooks/24_in_models: qwen mrope
"""
"""What practitioners type, and the page, or one of two pages, that the first three results hold."""


def cases(table: str, places: int) -> Iterator[tuple[str, str, int]]:
    """Yield each question, the page or pages that it finds, and among how many."""
    for line in table.split("\n")[1:-1]:
        page, questions = line.split(": ")
        yield from ((question, page, places) for question in questions.split("; "))


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
    [*cases(FIRST, 1), *cases(AMONG_TWO, 2), *cases(AMONG_THREE, 3)],
)
def test_a_question_finds_its_page(query: str, page: str, places: int, window: Reader) -> None:
    pages = [hit["page"] for hit in found(window, query)[:places]]
    assert {*page.split(" | ")} & {*pages}, pages


def test_an_entry_of_the_glossary_is_found_by_each_of_its_terms(window: Reader, site: Path) -> None:
    page = (site / "book" / "terms.html").read_text(encoding="utf8")
    for query in ("logit", "data-dependent decay", "forget gate", "literal twin", "told apart"):
        hit = next(hit for hit in found(window, query) if hit["page"] == "book/terms")
        assert f'id="{hit["anchor"]}"' in page
        assert hit["heading"] in (
            "Score", "Data-dependent decay", "Reference implementation", "Significant"
        )  # fmt: skip


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


def test_a_hit_says_where_it_is_and_opens_there(fresh: Reader, site: Path) -> None:
    page, query = fresh.page, "exact lookup constant memory"
    page.goto((site / "search.html").as_uri() + f"?q={quote_plus(query)}")
    hit = page.locator("ul.search > li").first
    assert f"results for “{query}”" in page.locator(".search-summary").inner_text()
    assert hit.locator("mark").first.inner_text().lower() in query.split()
    target = hit.locator("a").get_attribute("href")
    assert re.match(r"book/choose\.html#constant-memory-during-generation:~:text=", target)
    hit.locator("a").click()
    page.wait_for_url("**/choose.html*")
    assert page.locator("#constant-memory-during-generation").first.is_visible()


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
    assert listed["page"] == "book/bibliography"
    assert listed["heading"] == "Katharopoulos et al., 2020"
    page = (site / "book/bibliography.html").read_text(encoding="utf8")
    assert f'id="{listed["anchor"]}"' in page
    said = found(window, "kernelised attention replaced by features elu")[0]["excerpt"]["text"]
    assert "Katharopoulos et al. [2020] replaced this exponential" in said


def test_what_is_nowhere_is_said_to_be(fresh: Reader, site: Path) -> None:
    page = fresh.page
    page.goto((site / "search.html").as_uri() + "?q=qqxyzzy")
    assert page.locator(".search-summary").inner_text().startswith("No page contains “qqxyzzy”")
    assert page.locator("ul.search > li").count() == 0
    assert page.evaluate("bookSearch('constructor').length") >= 0  # no word breaks it
