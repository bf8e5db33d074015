"""Plain loops recorded once and replayed: the steps of a cell without a call from Python each."""
