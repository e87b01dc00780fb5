"""The Python API: `load` returns a `Model` that translates, generates, scores, classifies, tags, fills and embeds.

    model = regard.load("runs/en-it")
    model.translate("I love you.", beam=8)                # a text, a list or an iterator of texts
    model.translate_detailed(["I love you."], n_best=3)   # with alternatives, tokens and scores

Everything is loaded when it is first needed: translation with CTranslate2 never imports torch.
"""

from regard.api.model import Model, load

__all__ = ["Model", "load"]
