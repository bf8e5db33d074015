"""Why a model answered as it did: contributions of samples, and what deleting them changes."""

from undamped.lab.training.explanations.explain import Explanation, explain

__all__ = ["Explanation", "explain"]
