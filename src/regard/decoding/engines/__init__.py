"""Engines run searches: PyTorch supports every network and option, CTranslate2 most of them, much faster on CPUs."""
