"""The book's figures that a reader moves, outside of the package: one file a chapter.

``notebooks/16_gating.ipynb`` shows what ``book.figures.gating`` draws. A figure is a function of
its sliders that returns a :class:`~lab.explore.explorer.Drawn`, the picture and what it
says in words: ``Explorer(gated_query, match=[0, 4, 8], ...)``.
"""
