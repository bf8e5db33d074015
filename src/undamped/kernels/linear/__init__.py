"""Linear recurrences over time: numbers, complex numbers, pairs, and driven oscillators."""
