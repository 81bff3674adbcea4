"""What the instruments of the pages compute: modules that are exported and run there.

Each module of this folder has ``programs()``, which ``{live}`` in a page writes beside it, and the
script ``book/_assets/live-NAME.js``, which draws.
"""
