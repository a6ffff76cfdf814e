"""Schedules of kernels on TPUs."""
