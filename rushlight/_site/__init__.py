"""The folder that a process with Rushlight's alias adds to its children's ``PYTHONPATH`` (see
``rushlight/alias.py``)."""
