"""Anchorscope: where in the network a language model's truthfulness signal is anchored.

Plain functions on plain data. No module here reads the config, the environment or a global:
what a job uses reaches it through its arguments.
"""
