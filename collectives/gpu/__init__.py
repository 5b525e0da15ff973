"""Arrays in the memory of GPUs: what they are, their streams, pinned memory, facts.

CuPy is imported once there is a device array, and never before. What moves such arrays
lies where its counterpart for host arrays does: transport/, algorithms/, calls/.
"""
