"""Labs: claims of the paper and of its teachers, each an experiment on our own networks. One file per lab."""

from regard.labs.lab import Bench, Drawing, Effort, Lab, Outcome, Table

__all__ = ["LABS", "Bench", "Drawing", "Effort", "Lab", "Outcome", "Table"]

LABS = {
    lab.name: lab
    for lab in [
        Lab(
            "worked-example",
            "Attention by hand",
            "Self-attention and the look-ahead mask on numbers small enough to check by hand.",
            "a classroom example; Vaswani et al. (2017), eq. 1 and §3.2.3",
        ),
        Lab(
            "scaling",
            "Why scores are divided by √d_k",
            "Without ÷√d_k the softmax saturates as keys grow longer, and its gradient dies.",
            "Vaswani et al. (2017), §3.2.1",
        ),
        Lab(
            "beams",
            "How wide to search",
            "Beam search finds more probable translations than greedy decoding, and better ones, up to a point: "
            "wide beams hurt, most of all without a length penalty.",
            "Vaswani et al. (2017), §6.1; Koehn and Knowles (2017), §3.6",
        ),
        Lab(
            "alignment",
            "Attention as alignment",
            "Cross-attention can be read as an alignment of words, in some heads; but what it shows need not be what "
            "the output depends on.",
            "Bahdanau et al. (2015), §5.2; Vaswani et al. (2017), §4; Jain and Wallace (2019)",
        ),
        Lab(
            "sharing",
            "One matrix for three",
            "Sharing the embeddings of both languages and the weights before the softmax saves parameters at no loss.",
            "Vaswani et al. (2017), §3.4; Press and Wolf (2017)",
        ),
        Lab(
            "heads",
            "One head or several",
            "Several heads beat one that costs as much, and single heads do different things.",
            "Vaswani et al. (2017), §3.2.2 and Table 3, rows A; Michel et al. (2019)",
        ),
        Lab(
            "positions",
            "Past the trained length",
            "Learned positions cannot go on past the length they were trained at; clipped relative ones and ALiBi can.",
            "Vaswani et al. (2017), §3.5; Shaw et al. (2018); Press et al. (2022)",
        ),
        Lab(
            "ablations",
            "Table 3, in small",
            "Larger models are better and smaller ones worse, and label smoothing costs perplexity.",
            "Vaswani et al. (2017), §6.2 and Table 3",
        ),
    ]
}
