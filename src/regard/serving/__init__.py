"""The HTTP API: LibreTranslate's protocol, OpenAI's completions and embeddings, and our own, for one model or several.

    regard serve runs/en-it

`app.py` puts it together, `routes/` has a file for each part of the API, `batcher.py` lets requests share the work.
"""
