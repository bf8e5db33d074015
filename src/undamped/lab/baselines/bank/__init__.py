"""Models with fixed dynamics, of which only a linear readout is fitted."""
