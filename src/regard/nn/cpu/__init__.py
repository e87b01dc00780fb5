"""Fast paths for CPUs, each equal to the plain code that it replaces."""
