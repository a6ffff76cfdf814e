"""The values every room shares: targets, computes, steps, loop nests, sketches and spaces.

Start at `schedules/ir/compute.py`.
"""
