"""Tasks: one file for each thing that `regard train` can train.

Each file has the definition of a task (name, help, default network, automatic settings, data preparation, abilities)
and the task bound to data and a network (batches, objective, validation, samples). Importing one imports no torch.
`regard.training.task` has the interface and the registry.
"""
