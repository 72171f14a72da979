"""Decisions: which device executes a request. Pure; neither simpy nor torch."""
