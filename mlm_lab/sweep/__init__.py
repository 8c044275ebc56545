"""Sweeps: the points of a W&B sweep file, checked, costed, run on this machine, tuned and searched without an account."""
