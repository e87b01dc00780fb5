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
    ]
}
