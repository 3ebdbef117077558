"""What the command `anchorscope` does, one module for each kind of work.

`add_arguments` says what it takes, and `run` does it. Importing one of them imports little: what takes seconds is
imported by `run`.
"""
