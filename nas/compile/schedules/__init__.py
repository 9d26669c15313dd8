"""Schedules written by hand for the shapes of kernel that networks are made of, close to the best without a search.

A family is one file: it says which workloads it fits, proposes a few dozen ways to schedule one
(tile sizes, where padding goes), best guess first, and applies a way to the workload. The tuner
times as many as its budget allows.
"""
