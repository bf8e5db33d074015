"""The recurrence of a bank of oscillators with its running pools, and its compiled loops."""
