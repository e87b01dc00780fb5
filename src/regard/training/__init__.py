"""Training: objectives, schedule, loop, checkpoints, validation."""
