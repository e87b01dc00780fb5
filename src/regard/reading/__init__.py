"""What a text encoder tells about texts: the words that are missing in them."""
