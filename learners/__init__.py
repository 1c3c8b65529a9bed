"""Learners in the store: rows to a learner's state and back. The one place that knows both torch and tables."""
