"""Looking inside: traces of real decodes, alignments, ablations, gradients, plots. Everything comes from taps."""
