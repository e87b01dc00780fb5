"""Inspect a model at work: traces, alignment, interventions, gradients, plots. All numbers come from taps.

Layers, from bottom to top: addresses and points; decoding and recording; `ForwardPass`; analyses; rendering; `Trace`.
"""
