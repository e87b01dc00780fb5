"""Text from data and models as it is shown: terminals and browsers must not interpret control characters.

Escape sequences of a terminal can move the cursor, change the title or fake output; bidirectional controls reorder what
follows them. Every place that shows such text (terminal, HTML pages, logs) passes it through `visible`. The page of the
server does the same in `web/dom.js`.
"""

# Explicit embeddings, overrides and isolates. The marks U+200E, U+200F and U+061C stay: they affect no other text.
BIDI_CONTROLS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
KEPT_CONTROLS = "\t\n"

_VISIBLE: dict[int, str] = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in KEPT_CONTROLS}
_ESCAPED = (*range(0x7F, 0xA0), *BIDI_CONTROLS, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_VISIBLE |= {code: f"\\u{code:04x}" for code in _ESCAPED}


def visible(text: str) -> str:
    """Return a text with its control characters made visible; tabs and line feeds stay.

    C0 controls become their symbols, all others, bidirectional controls and lone surrogates become escapes, as in JSON.

    >>> visible("\\x1b[31mred"), visible("a\\u202eb")
    ('␛[31mred', 'a\\\\u202eb')
    """
    return text if text.isascii() and text.isprintable() else text.translate(_VISIBLE)
