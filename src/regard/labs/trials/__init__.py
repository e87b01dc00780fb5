"""Shared parts of experiments: synthetic tasks, short training runs, loss surfaces and translation models."""
