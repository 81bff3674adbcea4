"""Code for the book's experiments and figures: tasks, training, theory, figures and records.

This folder is not a part of the package :mod:`stringlib`. The book and its results import the
laboratory, and the laboratory imports the package. The package never imports the laboratory.
"""
