"""Formats that published sets come in."""
