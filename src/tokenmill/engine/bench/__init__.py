"""Benchmarks of kernels and of whole models, next to limits of the machine measured in the same run."""
