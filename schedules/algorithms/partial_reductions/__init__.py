"""Reductions of few results whose parts are merged apart by tasks, by any monoid."""
