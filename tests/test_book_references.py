"""The bibliography's style: labels as the text cites, capitals kept, links."""

from __future__ import annotations

from pybtex.database import parse_string

from _ext import book_references

ENTRIES = """
@misc{d,author={Su, Jianlin and Lu, Yu and Pan, Shengfeng},title={Later},year={2024},url={http://a.b}}
@misc{a,author={Gu, Albert},title={One of {GU}: What Then},year={2020},note={arXiv:2001.00001}}
@misc{c,author={Dao, Tri and Gu, Albert},title={Two},year={2021},note={PMLR 3; arXiv:2101.00001}}
@misc{b,author={Peng, Bo and others},title={Many},year={2022},note={arXiv:2201.00001; renamed}}
@misc{f,author={Gu, Albert},title={Twin},year={2020},doi={10.1/2}}
@misc{e,author={de la Vall{\\'e}e, Jean},title={Particles},year={1908},note={a note}}
"""


def test_entries_are_sorted_and_labelled_by_author_and_year() -> None:
    data = parse_string(ENTRIES, "bibtex")
    shown = list(book_references.BookStyle().format_entries(data.entries.values()))
    assert [(entry.key, entry.label) for entry in shown] == [
        ("c", "Dao and Gu, 2021"),
        ("e", "de la Vallée, 1908"),
        ("a", "Gu, 2020a"),
        ("f", "Gu, 2020b"),
        ("b", "Peng et al., 2022"),
        ("d", "Su et al., 2024"),
    ]
    text = {entry.key: str(entry.text).replace("<newblock>", " ") for entry in shown}
    links = {entry.key: entry.text.render_as("html") for entry in shown}
    assert text["a"] == "Albert Gu. One of GU: What Then. 2020. arXiv:2001.00001."
    assert text["b"].endswith("Many. 2022. Renamed. arXiv:2201.00001.")
    assert text["c"].endswith("PMLR 3. arXiv:2101.00001.")
    assert text["e"].endswith("a note.")
    assert '<a href="https://arxiv.org/abs/2001.00001">arXiv:2001.00001</a>' in links["a"]
    assert '<a href="https://doi.org/10.1/2">' in links["f"]
    assert '<a href="http://a.b">' in links["d"]
    assert data.entries["a"].fields["note"] == "arXiv:2001.00001"  # the entry itself stays
