"""Our tokenizers in a Hugging Face folder, where `AutoTokenizer` finds them and cuts texts into the same ids."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from regard.interop.theirs import Theirs
from regard.interop.tokenizers import TOKENIZER_CONFIG, Tokenizers, carried
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE


def exported_tokenizers(folder: Path, theirs: Theirs) -> tuple[Tokenizers, dict[str, Any], list[str]]:
    """The tokenizers of a model folder for a class of theirs, what `tokenizer_config.json` says of them, and notes."""
    tokenizers = carried(folder, TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
    main = tokenizers.by_file.get(TOKENIZER_FILE)
    if main is None:
        return tokenizers, {}, ["The model has no tokenizer, so neither has the exported one: it is used with ids."]
    notes = []
    if not _frame(main, theirs.before, theirs.after):
        notes.append("The tokenizer lacks a special token of the model, so it puts none around a text.")
    if TARGET_TOKENIZER_FILE in tokenizers.by_file:
        notes.append(f"AutoTokenizer reads {TOKENIZER_FILE}, for sources; {TARGET_TOKENIZER_FILE} is the targets'.")
    return tokenizers, {TOKENIZER_CONFIG: _settings(main, theirs)}, notes


def _frame(tokenizer: Tokenizer, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Have the tokenizer put these ids around a text, unless it does; whether it knows them."""
    bare, framed = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    if framed == [*before, *bare, *after]:
        return True
    names = {number: tokenizer.id_to_token(number) for number in (*before, *after)}
    if None in names.values():
        return False
    template = [*(names[number] for number in before), "$A", *(names[number] for number in after)]
    pair = [*template, "$B", *(names[number] for number in after)]
    known = [(name, number) for number, name in names.items()]
    tokenizer.post_processor = processors.TemplateProcessing(template, pair, known)
    return True


def _settings(tokenizer: Tokenizer, theirs: Theirs) -> dict[str, Any]:
    """The class that takes a `tokenizer.json` as it is, and what the special tokens are called."""
    others = [
        number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special and number not in theirs.special.values()
    ]
    named = {name: tokenizer.id_to_token(number) for name, number in theirs.special.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        # "[EOS]" in a text is text; but a language code, say, is meant as one, and so is a mask
        "split_special_tokens": not others and "mask_token" not in named,
        **theirs.tokenizer,
        **{name: token for name, token in named.items() if token is not None},
    }
