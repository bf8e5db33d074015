"""Registries that forget after a test what it entered."""


def isolate(monkeypatch, *registries):
    """Let registries forget what is entered from here on.

    All names are looked up first: a module enters its names when it is imported, which happens
    once, and must not be forgotten.
    """
    for registry in registries:
        for name in registry.index:
            registry[name]
        for attribute in ("_entries", "_sources"):
            monkeypatch.setattr(registry, attribute, dict(getattr(registry, attribute)))
