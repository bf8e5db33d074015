"""The workbench: tasks, data, training, estimators, instruments, reports and the command line."""
