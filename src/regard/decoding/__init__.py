"""Decoding and encoder inference: from network outputs to tokens, text, labels and vectors."""
