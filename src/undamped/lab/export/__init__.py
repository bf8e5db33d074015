"""Models as files that need neither this library nor PyTorch."""

from undamped.lab.export.onnx_file import export_onnx, subject_of
from undamped.lab.export.subject import Subject

__all__ = ["Subject", "export_onnx", "subject_of"]
