"""Models whose dynamics are drawn once and never trained: only a linear readout is learnt."""
