"""Batch inference: tasks over tables of texts, and jobs that read and write sharded files.

    translate = regard.batch.Translate("runs/en-it", "en", "it")     # for Ray, Dask and Spark: map_batches(translate)
    regard.batch.run(translate, ["texts.jsonl"], "out", workers=4)   # the command `regard batch translate`

Names are imported when they are first used; torch is imported in the processes that load a model.
"""

from typing import TYPE_CHECKING

from regard.registry import lazy_exports

if TYPE_CHECKING:
    from regard.batch.runner import BatchSummary, run, verify
    from regard.batch.tasks import BatchTask, Classify, Embed, Generate, Translate

__all__ = ["BatchSummary", "BatchTask", "Classify", "Embed", "Generate", "Translate", "run", "verify"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(("BatchSummary", "run", "verify"), "regard.batch.runner"),
        **dict.fromkeys(("BatchTask", "Classify", "Embed", "Generate", "Translate"), "regard.batch.tasks"),
    },
)
