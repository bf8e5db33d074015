"""Experiments about systems that move: what their papers print, and what comes out here."""
