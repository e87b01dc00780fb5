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
            "steps",
            "Steps that wait for each other",
            "A recurrent network takes O(n) operations one after the other to read n tokens, self-attention O(1).",
            "Vaswani et al. (2017), §4 and Table 1",
        ),
        Lab(
            "gradients",
            "Gradients over a distance",
            "Through an RNN gradients vanish or explode with distance, through an LSTM less, through attention not.",
            "Bengio et al. (1994); Hochreiter & Schmidhuber (1997), §3; Vaswani et al. (2017), §4",
        ),
        Lab(
            "distance",
            "Remembering over a distance",
            "What lies far back is hard to learn for recurrent networks, most of all an RNN, and not for attention.",
            "Bengio et al. (1994); Vaswani et al. (2017), §1 and §4",
        ),
        Lab(
            "scaling",
            "Why scores are divided by √d_k",
            "Without ÷√d_k the softmax saturates as keys grow longer, and its gradient dies.",
            "Vaswani et al. (2017), §3.2.1",
        ),
        Lab(
            "quadratic",
            "What length costs",
            "Full attention costs the square of the length; Linformer, BigBird and a window cost in proportion to it.",
            "Vaswani et al. (2017), Table 1; Wang et al. (2020), Linformer; Zaheer et al. (2020), BigBird",
        ),
    ]
}
