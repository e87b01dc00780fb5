"""HTTP server: LibreTranslate's protocol, OpenAI's completions and embeddings, and regard's own routes.

    regard serve runs/en-it

`app.py` builds the FastAPI application, `routes/` has one module per protocol or ability, `batching.py` processes the
texts of several requests together.
"""
