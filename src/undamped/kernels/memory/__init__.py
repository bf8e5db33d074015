"""Scans over time with attention to remembered states: RelRNN, RelLSTM, MemRNN, MemLSTM."""
