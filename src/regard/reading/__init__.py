"""What a text encoder is used for: vectors of texts, labels of texts, tags of words, words that are missing."""
