"""Docstrings as the reference reads them.

A section "Example" is shown as code, the fields of a named tuple are attributes, and a docstring
that is completed at run time is taken from the class.
"""

import importlib
import inspect
import re

import griffe


class Docstrings(griffe.Extension):
    """Adapt the docstrings of classes and functions before they are parsed."""

    def on_instance(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring is None:
            return
        text = obj.docstring.value
        if "{parameters}" in text:
            module = importlib.import_module(obj.module.path)
            text = inspect.getdoc(getattr(module, obj.name)) or ""
        if obj.is_class and any(str(base) == "NamedTuple" for base in obj.bases):
            text = re.sub(r"^Args:$", "Attributes:", text, flags=re.M)
        obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.M)
