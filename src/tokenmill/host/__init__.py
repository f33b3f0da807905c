"""Host facts, quota and topology, read below a given root so that a test hands in a fake tree."""

from tokenmill.host.facts import read_host_facts

__all__ = ["read_host_facts"]
