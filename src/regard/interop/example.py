"""What to type to use an exported model: a few lines of Python that run as they are, and need nothing of ours."""

import json
from pathlib import Path

from regard.config import Config, DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE

LABEL_HEAD_CLASSES = {"classes": "AutoModelForSequenceClassification", "tags": "AutoModelForTokenClassification"}
EXAMPLE_TEXT = "I love you very much"


def ctranslate2_example(folder: Path, config: Config) -> list[str]:
    """Lines that run a model converted for CTranslate2."""
    kind = "Translator" if isinstance(config.model, EncoderDecoderConfig) else "Generator"
    loaded = f"model = ctranslate2.{kind}({_quoted(folder)})"
    if not (folder / TOKENIZER_FILE).exists():
        return ["import ctranslate2", loaded]
    lines = ["import ctranslate2, tokenizers", loaded, _tokenizer("tokenizer", folder / TOKENIZER_FILE)]
    pieces = f"tokenizer.encode({_quoted(EXAMPLE_TEXT)}, add_special_tokens=False).tokens"
    if kind == "Translator":
        target = "tokenizer"
        if (folder / TARGET_TOKENIZER_FILE).exists():
            target = "target"
            lines.append(_tokenizer(target, folder / TARGET_TOKENIZER_FILE))
        return [
            *lines,
            f"best = model.translate_batch([{pieces}])[0].hypotheses[0]",
            f"print({target}.decode([{target}.token_to_id(piece) for piece in best]))",
        ]
    start = json.loads((folder / "config.json").read_text("utf-8"))["bos_token"]
    prompt = f"[{_quoted(start)}, *{pieces}]" if config.tokens.start != config.tokens.end else pieces
    room = min(50, (config.model.max_length or 100) // 2)
    return [
        *lines,
        f"text = model.generate_batch([{prompt}], max_length={room}, sampling_topk=10)[0]",
        "print(tokenizer.decode(text.sequences_ids[0]))",
    ]


def huggingface_example(folder: Path, config: Config) -> list[str]:
    """Lines that run a model exported for transformers."""
    kinds = {EncoderDecoderConfig: "AutoModelForSeq2SeqLM", DecoderOnlyConfig: "AutoModelForCausalLM"}
    kind = kinds.get(type(config.model), "AutoModel")
    if isinstance(config.model, EncoderOnlyConfig):
        kind = LABEL_HEAD_CLASSES.get(config.model.head.kind, kind)
    loaded = f"model = {kind}.from_pretrained({_quoted(folder)})"
    if not (folder / TOKENIZER_FILE).exists():
        return [f"from transformers import {kind}", loaded]
    lines = [
        f"from transformers import {kind}, AutoTokenizer",
        loaded,
        f"tokenizer = AutoTokenizer.from_pretrained({_quoted(folder)})",
        f'ids = tokenizer({_quoted(EXAMPLE_TEXT)}, return_tensors="pt")',
    ]
    if kind in LABEL_HEAD_CLASSES.values():
        return [*lines, "print(model(**ids).logits.softmax(-1))"]
    if kind == "AutoModel":
        return [*lines, "print(model(**ids).last_hidden_state)"]
    target = "tokenizer"
    if (folder / TARGET_TOKENIZER_FILE).exists():
        target = "target"
        lines += ["import tokenizers", _tokenizer(target, folder / TARGET_TOKENIZER_FILE)]
    return [*lines, f"print({target}.decode(model.generate(**ids)[0].tolist(), skip_special_tokens=True))"]


def _tokenizer(name: str, path: Path) -> str:
    return f"{name} = tokenizers.Tokenizer.from_file({_quoted(path)})"


def _quoted(text: str | Path) -> str:
    return json.dumps(str(text), ensure_ascii=False)
