"""The computations of the instruments in the pages, as PyTorch modules.

Each module of this folder has a function ``programs()``. The directive ``{live}`` exports these
programs into a file next to the page, and ``book/_assets/live-NAME.js`` runs them and draws.
"""
