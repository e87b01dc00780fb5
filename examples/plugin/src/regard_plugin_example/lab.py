"""A lab: the bias of log-distance positions decreases with distance, in every head."""

from itertools import pairwise

import torch

from regard.labs import Lab, LabContext, LabResult, LabTable
from regard.nn import make_layout
from regard_plugin_example.positions import LogDistancePositions

METHOD = "The bias of freshly initialized positions is computed for one query and all keys."
LIMITATIONS = "The slopes are those of initialization; training changes them."

LAB = Lab(
    "log-distance",
    "Logarithmic distance penalty",
    "The bias of log-distance positions decreases with distance.",
    "Chi et al. (2022)",
    module="regard_plugin_example.lab",
)


def run(context: LabContext) -> LabResult:
    """Compute the bias by distance."""
    length = context.by_effort(8, 32, 128)
    layout = make_layout(torch.zeros(1, length, dtype=torch.long))
    bias = LogDistancePositions(2).bias(torch.zeros(1, 2, length, 4), layout)[0, :, 0].tolist()
    decreasing = all(earlier > later for head in bias for earlier, later in pairwise(head))
    rows = [[str(distance), f"{bias[0][distance]:.3f}"] for distance in (0, 1, 2, 4)]
    summary = f"The bias falls from {bias[0][0]:.2f} to {bias[0][-1]:.2f} over {length - 1} positions."
    return LabResult(decreasing, summary, {"bias": bias}, tables=[LabTable("Bias", ["distance", "bias"], rows)])
