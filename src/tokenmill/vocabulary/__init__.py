"""Frozen values that rooms trade. Standard library only; every value is also a JSON document."""
