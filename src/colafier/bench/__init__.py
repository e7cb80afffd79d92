"""The benchmark: suites of runs, their records, and tables of the results beside the paper's."""
