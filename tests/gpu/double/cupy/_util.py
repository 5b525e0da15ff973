"""Where CuPy keeps its warning."""


class PerformanceWarning(RuntimeWarning):
    pass
