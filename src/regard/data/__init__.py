"""Text: corpora, tokenizer, token store, batches. Knows nothing of networks."""
