"""Data: readers, tokenizer, token store, batches, masking and preparation. Imports no networks."""
