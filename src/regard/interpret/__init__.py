"""Inspect a model at work: traces, alignment, interventions, gradients, figures. All values are read at taps.

    from regard.interpret import Intervention

    trace = model.look("I love you very much.")
    trace.intervene(Intervention.parse("decoder.1.cross_attention[2]"))

Modules, from top to bottom: `trace`; `render`; the analyses (`attribution`, `interventions`, `tensors`,
`training_step`); `predictions`; `forward_pass`; `decode`.
"""

from typing import TYPE_CHECKING

from regard.registry import lazy_exports

if TYPE_CHECKING:
    from regard.interpret.decode import TracedModel
    from regard.interpret.interventions import Intervention
    from regard.interpret.tensors import Address
    from regard.interpret.trace import Trace, look

__all__ = ["Address", "Intervention", "Trace", "TracedModel", "look"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Address": "regard.interpret.tensors",
        "Intervention": "regard.interpret.interventions",
        "Trace": "regard.interpret.trace",
        "TracedModel": "regard.interpret.decode",
        "look": "regard.interpret.trace",
    },
)
