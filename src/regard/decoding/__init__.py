"""Decoding: from a network's predictions to tokens, and to text; by torch, or by CTranslate2 where it can."""
