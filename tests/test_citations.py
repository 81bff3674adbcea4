"""Citations as a plain notebook shows them, and as the book reads them."""

from __future__ import annotations

import pytest

from tools.citations import cited, entries, faults

SU = "https://arxiv.org/abs/2104.09864"
SCHENCK = "https://arxiv.org/abs/2502.02562"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"As Su\net al. [[2024]({SU})] say.", "As {cite:t}`su2024roformer` say."),
        (f"It turns [[Su et al.,\n2024]({SU})].", "It turns {cite:p}`su2024roformer`."),
        (
            f"[[Su et al., 2024]({SU}); [Schenck et al., 2025]({SCHENCK})]",
            "{cite:p}`su2024roformer,schenck2025string`",
        ),
        ("[code](https://example.org) of [x]", "[code](https://example.org) of [x]"),
    ],
)
def test_a_link_to_a_paper_is_a_citation(text: str, read: str) -> None:
    assert cited(text) == read
    assert [*faults(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        f"Lu et al. [[2024]({SU})]",
        f"[[Su et al., 2023]({SU})]",
        f"[RoFormer]({SU})",
        "{cite:t}`su2024roformer`",
    ],
)
def test_other_words_are_refused(text: str) -> None:
    assert [*faults(text)]


def test_every_entry_can_be_read_somewhere_and_no_two_in_one_place() -> None:
    places = [url for _, _, url in entries().values()]
    assert all(url.startswith("https://") for url in places)
    assert len({*places}) == len(places)


def test_one_two_and_many_authors() -> None:
    assert entries()["householder1958unitary"][0] == "Householder"
    assert entries()["erdos1959random"][0] == "Erdős and Rényi"
    assert entries()["peng2024rwkv6"][0] == "Peng et al."
