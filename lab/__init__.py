"""What the book's experiments and figures run on: tasks, training, theory, figures, records.

A folder beside the package :mod:`stringlib`, not in it: the book and its results import the
laboratory, the laboratory imports the package, and never the other way round.
"""
