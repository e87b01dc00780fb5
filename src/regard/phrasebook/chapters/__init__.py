"""The chapters of the phrasebook: each function is a kind of sentence, drawn with dice."""
