"""Scans over time with attention over stored states: RelRNN, RelLSTM, MemRNN, MemLSTM."""
