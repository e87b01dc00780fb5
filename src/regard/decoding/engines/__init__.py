"""Engines: what carries out a search. Torch runs every network; CTranslate2 runs most of them much faster on a CPU."""
