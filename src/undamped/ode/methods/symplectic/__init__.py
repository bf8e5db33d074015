"""Symplectic methods: for Hamiltonian fields, they keep phase volume and bound energy drift."""
