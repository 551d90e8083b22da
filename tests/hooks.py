"""Hooks that tests of several folders use."""

from paceline.estimator import SessionRunArgs, SessionRunHook


class Losses(SessionRunHook):
    """Notes the loss of each step in `values`."""

    def __init__(self):
        self.values = []

    def before_run(self, run_context):
        return SessionRunArgs("loss")

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)
